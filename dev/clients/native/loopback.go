package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// answer is what a login gave: the tokens, and the nonce that the ID token must have.
type answer struct {
	token *oauth2.Token
	nonce string
}

// loopback listens on a free port of 127.0.0.1, opens the browser and waits for the redirect to
// `http://HOST:PORT` and the path.
func loopback(ctx context.Context, config oauth2.Config, browser []string, host, path string) (answer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return answer{}, err
	}
	config.RedirectURL = fmt.Sprintf("http://%s:%d%s", host, listener.Addr().(*net.TCPAddr).Port, path)
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	codes, faults := make(chan string, 1), make(chan error, 2)
	server := &http.Server{ReadHeaderTimeout: browserTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := r.URL.Query()
		switch {
		case answer.Get("state") != state:
			faults <- fmt.Errorf("state is %q, not %q", answer.Get("state"), state)
		case answer.Get("code") == "":
			faults <- fmt.Errorf("error %q: %s", answer.Get("error"), answer.Get("error_description"))
		default:
			codes <- answer.Get("code")
		}
		fmt.Fprintln(w, "You can close this page.")
	})}
	defer server.Close()
	go func() { _ = server.Serve(listener) }()
	address := config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier))
	opened := exec.CommandContext(ctx, browser[0], append(browser[1:], address)...)
	opened.Stderr = os.Stderr
	go func() {
		if err := opened.Run(); err != nil {
			faults <- fmt.Errorf("the browser: %w", err)
		}
	}()
	var token *oauth2.Token
	select {
	case code := <-codes:
		token, err = config.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	case err = <-faults:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return answer{token, nonce}, err
}
