// Command native logs in as native applications do (RFC 8252), with golang.org/x/oauth2 and
// github.com/coreos/go-oidc. It opens addresses with the command BROWSER, and prints a line of JSON
// for each check.
//
//	native terminal BROWSER...   a program that calls userinfo
//	native kubelogin BROWSER...  what the plugin kubelogin does for kubectl
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

const (
	browserTimeout = 10 * time.Second
	timeout        = 60 * time.Second
)

// verdict is a line of output.
type verdict struct {
	Check   string  `json:"check"`
	Seconds float64 `json:"seconds"`
	Fault   string  `json:"fault,omitempty"`
}

// step is a check. The next one needs its result.
type step struct {
	name string
	run  func(context.Context) error
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: native terminal|kubelogin BROWSER...")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var steps []step
	switch program, browser := os.Args[1], os.Args[2:]; program {
	case "terminal":
		steps = newTerminal(browser).steps()
	case "kubelogin":
		steps = newKubelogin(browser).steps()
	default:
		fmt.Fprintf(os.Stderr, "unknown program: %s\n", program)
		os.Exit(2)
	}
	output := json.NewEncoder(os.Stdout)
	for _, step := range steps {
		began := time.Now()
		line := verdict{Check: step.name}
		err := step.run(ctx)
		if err != nil {
			line.Fault = err.Error()
		}
		line.Seconds = time.Since(began).Seconds()
		if output.Encode(line) != nil || err != nil {
			os.Exit(1)
		}
	}
}
