"""Jobs of many users on many clusters: API, database, reconciler, web page.

Words that the modules of this package share:

- *row*: a job's row in the database. Its *revision* (`rev`) grows with each change; `seq` numbers
  the jobs by age.
- *submission*: one hand-over of a job to a scheduler, identified by the job's id and the number of
  the submission's first attempt (`first_attempt`). A resumed job has a new submission.
- *epoch*: an id of one start of a scheduler's process. After a restart, the scheduler has forgotten
  its jobs.
- *order*: a request to a scheduler to change a job. *PUT*: the order that submits one.
- *pass*: one round of the reconciler over the jobs of a cluster, about once a second.
- *alive*: not ended. *Final columns*: the values of a row that end its job.
- *publisher*: the one process that publishes events and deletes expired data; it holds the lock
  `publisher`.
- *problem*: an error answer of the API (`api.problems`).
"""
