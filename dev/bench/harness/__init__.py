"""What dev/bench-lifecycle and dev/bench-generator share; dev/test-clients takes processes and keys.

credentials  one key, token and certificate that every subject verifies
process      starting and stopping what is measured, whatever ends the script; CPU and memory from /proc
subjects     the servers that are compared, each with its configuration template
drivers      wrk, h2load and postern-load, each as a function that returns figures
generators   wrk, hey, h2load, oha, k6 and postern-load beside each other
lifecycle, generator   what each script measures
scenario     scenarios with checks
facts        machine, versions, commit
table        Markdown, and statistics over rounds
script       names on the command line, programs, work folder, report files

Only the Python standard library, and only programs that dev/setup installs.
"""
