from tenancy.program import run

run()
