package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// terminal is a program in a terminal.
type terminal struct {
	browser  []string
	provider *oidc.Provider
	config   oauth2.Config
	token    *oauth2.Token
	idToken  *oidc.IDToken
}

func newTerminal(browser []string) *terminal { return &terminal{browser: browser} }

func (t *terminal) steps() []step {
	return []step{
		{"discovery", t.discover},
		{"code flow with PKCE, back at a port of the moment", t.logIn},
		{"ID token: signature, issuer, audience, nonce, at_hash", t.verify},
		{"userinfo", t.userinfo},
		{"refresh", t.refresh},
	}
}

func (t *terminal) discover(ctx context.Context) error {
	provider, err := oidc.NewProvider(ctx, os.Getenv("CLIENTS_ISSUER"))
	if err != nil {
		return err
	}
	t.provider = provider
	t.config = oauth2.Config{
		ClientID: "terminal",
		Endpoint: provider.Endpoint(),
		Scopes:   []string{oidc.ScopeOpenID, "profile", "email", oidc.ScopeOfflineAccess},
	}
	if t.config.Endpoint.DeviceAuthURL == "" {
		return errors.New("no device authorization endpoint was discovered")
	}
	return nil
}

func (t *terminal) logIn(ctx context.Context) error {
	answer, err := loopback(ctx, t.config, t.browser, "127.0.0.1", "/callback")
	if err != nil {
		return err
	}
	t.token = answer.token
	return t.read(ctx, answer.nonce)
}

// read verifies the ID token of the response.
func (t *terminal) read(ctx context.Context, nonce string) error {
	text, ok := t.token.Extra("id_token").(string)
	if !ok {
		return errors.New("no ID token came")
	}
	verifier := t.provider.Verifier(&oidc.Config{ClientID: "terminal", SupportedSigningAlgs: []string{oidc.ES256}})
	token, err := verifier.Verify(ctx, text)
	if err != nil {
		return err
	}
	if token.Nonce != nonce {
		return fmt.Errorf("nonce is %q, not %q", token.Nonce, nonce)
	}
	t.idToken = token
	return nil
}

func (t *terminal) verify(context.Context) error {
	if err := t.idToken.VerifyAccessToken(t.token.AccessToken); err != nil {
		return err
	}
	var claims struct {
		AuthTime int64    `json:"auth_time"`
		Amr      []string `json:"amr"`
		Sid      string   `json:"sid"`
	}
	if err := t.idToken.Claims(&claims); err != nil {
		return err
	}
	if claims.AuthTime == 0 || len(claims.Amr) == 0 || claims.Sid == "" {
		return fmt.Errorf("auth_time, amr or sid is missing: %+v", claims)
	}
	return nil
}

func (t *terminal) userinfo(ctx context.Context) error {
	told, err := t.provider.UserInfo(ctx, t.config.TokenSource(ctx, t.token))
	if err != nil {
		return err
	}
	if told.Subject != t.idToken.Subject || told.Email != "bob@works.example" || !told.EmailVerified {
		return fmt.Errorf("userinfo tells %+v", told)
	}
	return nil
}

func (t *terminal) refresh(ctx context.Context) error {
	old := *t.token
	old.Expiry = time.Now().Add(-time.Hour)
	fresh, err := t.config.TokenSource(ctx, &old).Token()
	if err != nil {
		return err
	}
	if fresh.AccessToken == t.token.AccessToken || fresh.RefreshToken == t.token.RefreshToken {
		return errors.New("the tokens after a refresh are the old ones")
	}
	return nil
}
