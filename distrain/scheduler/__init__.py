"""All that runs in the Dask scheduler: the coordinator of jobs, HTTP routes, dashboard page.

Words that the modules of this package share:

- *submission*: one hand-over of a job to this scheduler, identified by the job's id and the number
  of its first attempt.
- *order*: a request that changes a job.
- *tombstone*: a short document about a removed job, so that its submission is not accepted again.
- *gang*: the ranks of one attempt. *Supervisor*: the Dask task that runs one rank's process.
- *slot*: a place for one rank, i.e. a Dask worker.
- *entry*: one item of a job's progress: a record (metrics), the start of an attempt, or a notice.
- *view*: a job's state and progress in the form that clients read (`JobView`).
- *document*: a job as JSON values, in one of several lengths (`history.job_json`).
"""
