"""Requests whose engine has died: the next serving process runs them again, or refuses a body that was there twice."""
