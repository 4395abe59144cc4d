// Command native logs in as a native application does (RFC 8252), with golang.org/x/oauth2 and
// github.com/coreos/go-oidc. `native BROWSER...` opens addresses with that command, and prints a
// line of JSON for each check.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// verdict is a line of output.
type verdict struct {
	Check   string  `json:"check"`
	Seconds float64 `json:"seconds"`
	Fault   string  `json:"fault,omitempty"`
}

// native runs the checks, step by step.
type native struct {
	browser  []string
	provider *oidc.Provider
	config   oauth2.Config
	token    *oauth2.Token
	idToken  *oidc.IDToken
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: native BROWSER...")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	program := native{browser: os.Args[1:]}
	steps := []struct {
		name string
		run  func(context.Context) error
	}{
		{"discovery", program.discover},
		{"code flow with PKCE, back at a port of the moment", program.logIn},
		{"ID token: signature, issuer, audience, nonce, at_hash", program.verify},
		{"userinfo", program.userinfo},
		{"refresh", program.refresh},
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

func (n *native) discover(ctx context.Context) error {
	provider, err := oidc.NewProvider(ctx, os.Getenv("CLIENTS_ISSUER"))
	if err != nil {
		return err
	}
	n.provider = provider
	n.config = oauth2.Config{
		ClientID: "terminal",
		Endpoint: provider.Endpoint(),
		Scopes:   []string{oidc.ScopeOpenID, "profile", "email", oidc.ScopeOfflineAccess},
	}
	if n.config.Endpoint.DeviceAuthURL == "" {
		return errors.New("no device authorization endpoint was discovered")
	}
	return nil
}

// logIn listens on a free port, opens the browser and waits for the redirect.
func (n *native) logIn(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	n.config.RedirectURL = fmt.Sprintf("http://%s/callback", listener.Addr())
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	codes, faults := make(chan string, 1), make(chan error, 2)
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	address := n.config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier))
	browser := exec.CommandContext(ctx, n.browser[0], append(n.browser[1:], address)...)
	browser.Stderr = os.Stderr
	go func() {
		if err := browser.Run(); err != nil {
			faults <- fmt.Errorf("the browser: %w", err)
		}
	}()
	select {
	case code := <-codes:
		n.token, err = n.config.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	case err = <-faults:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	return n.read(ctx, nonce)
}

// read verifies the ID token of the response.
func (n *native) read(ctx context.Context, nonce string) error {
	text, ok := n.token.Extra("id_token").(string)
	if !ok {
		return errors.New("no ID token came")
	}
	verifier := n.provider.Verifier(&oidc.Config{ClientID: "terminal", SupportedSigningAlgs: []string{oidc.ES256}})
	token, err := verifier.Verify(ctx, text)
	if err != nil {
		return err
	}
	if token.Nonce != nonce {
		return fmt.Errorf("nonce is %q, not %q", token.Nonce, nonce)
	}
	n.idToken = token
	return nil
}

func (n *native) verify(context.Context) error {
	if err := n.idToken.VerifyAccessToken(n.token.AccessToken); err != nil {
		return err
	}
	var claims struct {
		AuthTime int64    `json:"auth_time"`
		Amr      []string `json:"amr"`
		Sid      string   `json:"sid"`
	}
	if err := n.idToken.Claims(&claims); err != nil {
		return err
	}
	if claims.AuthTime == 0 || len(claims.Amr) == 0 || claims.Sid == "" {
		return fmt.Errorf("auth_time, amr or sid is missing: %+v", claims)
	}
	return nil
}

func (n *native) userinfo(ctx context.Context) error {
	told, err := n.provider.UserInfo(ctx, n.config.TokenSource(ctx, n.token))
	if err != nil {
		return err
	}
	if told.Subject != n.idToken.Subject || told.Email != "bob@works.example" || !told.EmailVerified {
		return fmt.Errorf("userinfo tells %+v", told)
	}
	return nil
}

func (n *native) refresh(ctx context.Context) error {
	old := *n.token
	old.Expiry = time.Now().Add(-time.Hour)
	fresh, err := n.config.TokenSource(ctx, &old).Token()
	if err != nil {
		return err
	}
	if fresh.AccessToken == n.token.AccessToken || fresh.RefreshToken == n.token.RefreshToken {
		return errors.New("the tokens after a refresh are the old ones")
	}
	return nil
}
