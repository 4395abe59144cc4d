"""What dev/bench-gateway and dev/bench-overload share.

credentials  one key, token and certificate that every subject verifies
process      starting and stopping what is measured; CPU and memory from /proc
subjects     the servers that are compared, each with its configuration template
drivers      wrk, h2load and postern-load, each as a function that returns figures
facts        machine, versions, commit
table        Markdown

Only the Python standard library, and only programs that dev/setup installs.
"""
