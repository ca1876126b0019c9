"""Entry programs that engines and runtimes call as hooks; all logic is in gpushim."""
