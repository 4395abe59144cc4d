// Command peer is Go's net/http on either side of the gateway: `peer serve ADDRESS` is an upstream
// that speaks HTTP/1.1 and HTTP/2 in plain text, `peer client` runs the checks and prints a line of
// JSON for each.
package main

import (
	"fmt"
	"os"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve":
		err = serve(os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == "client":
		err = runChecks()
	default:
		err = fmt.Errorf("usage: peer serve ADDRESS | peer client")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
