from tenancy.policy_pack import run

run()
