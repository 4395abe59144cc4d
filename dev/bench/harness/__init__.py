"""What dev/bench-provider, dev/bench-provider-size and dev/bench-generator share; dev/test-clients takes processes and keys.

credentials  keys and tokens
process      starting and stopping what is measured, whatever ends the script; CPU and memory from /proc
drivers      postern-load and other load drivers, as functions that return figures
generators   wrk, hey, h2load, oha, k6 and postern-load beside each other
providers    what the compared OpenID providers have in common; keycloak, postern_provider   each of them
provider, generator   what each script measures
scenario     scenarios with checks
facts        machine, versions, commit
machine      how much of the machine others used meanwhile
table        Markdown, and statistics over rounds
script       names on the command line, programs, work folder, report files

Only the Python standard library, and only programs that dev/setup installs.
"""
