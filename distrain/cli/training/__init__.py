"""Commands that plan and train a job."""
