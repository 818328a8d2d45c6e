from tenancy.cli import main

main()
