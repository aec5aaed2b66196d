"""What happens to a job: a pure machine, a scheduler shell, a worker shell, and ways in."""
