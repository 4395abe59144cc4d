#!/bin/sh
# Checks that all passwords are stored as argon2id with 5 iterations, 7168 KiB and parallelism 1.
stored=$(grep -o '"credentialData" *: *".*"' "$1")
people=$(printf '%s\n' "$stored" | grep -c hashIterations)
if [ "$people" -ne 50 ]; then
    echo "$people people of 50 have a password"
    exit 1
fi
for part in 'hashIterations":5[,}]' 'algorithm":"argon2"' 'type":\["id"\]' 'memory":\["7168"\]' 'parallelism":\["1"\]'; do
    if [ "$(printf '%s\n' "$stored" | tr -d '\\' | grep -c "$part")" -ne 50 ]; then
        echo "passwords cost something else than $part: $(printf '%s\n' "$stored" | head -n 1)"
        exit 1
    fi
done
