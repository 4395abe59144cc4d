package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// kubelogin does what the plugin kubelogin does for kubectl: it logs in with a redirect to
// `http://localhost` and a port of the moment, and sends the ID token as the credential.
type kubelogin struct {
	browser  []string
	client   string
	gateway  string
	cluster  string
	provider *oidc.Provider
	config   oauth2.Config
	token    *oauth2.Token
	idToken  string
}

func newKubelogin(browser []string) *kubelogin {
	return &kubelogin{
		browser: browser, client: "kubectl",
		gateway: os.Getenv("CLIENTS_GATEWAY"), cluster: os.Getenv("CLIENTS_CLUSTER"),
	}
}

func (k *kubelogin) steps() []step {
	return []step{
		{"discovery over TLS, with PKCE", k.discover},
		{"code flow, back at http://localhost and a port of the moment", k.logIn},
		{"the gateway accepts the ID token, with its groups", k.atGateway},
		{"the gateway refuses the access token, which is for another audience", k.accessToken},
		{"refresh: a new ID token, which the gateway accepts", k.refresh},
		{"the API server of Kubernetes accepts the ID token, and not the access token", k.atCluster},
		{"the API server permits what its role binding says, and nothing else", k.permitted},
	}
}

func (k *kubelogin) discover(ctx context.Context) error {
	provider, err := oidc.NewProvider(ctx, os.Getenv("CLIENTS_ISSUER"))
	if err != nil {
		return err
	}
	var metadata struct {
		Methods []string `json:"code_challenge_methods_supported"`
	}
	if err := provider.Claims(&metadata); err != nil {
		return err
	}
	if !slices.Contains(metadata.Methods, "S256") {
		return fmt.Errorf("PKCE methods are %q", metadata.Methods)
	}
	k.provider = provider
	k.config = oauth2.Config{
		ClientID: k.client,
		Endpoint: provider.Endpoint(),
		Scopes:   []string{oidc.ScopeOpenID, "profile", "groups", oidc.ScopeOfflineAccess},
	}
	return nil
}

func (k *kubelogin) logIn(ctx context.Context) error {
	answer, err := loopback(ctx, k.config, k.browser, "localhost", "")
	if err != nil {
		return err
	}
	k.token = answer.token
	token, err := k.read(ctx)
	if err == nil && token.Nonce != answer.nonce {
		err = fmt.Errorf("nonce is %q, not %q", token.Nonce, answer.nonce)
	}
	return err
}

// read verifies the ID token and keeps it.
func (k *kubelogin) read(ctx context.Context) (*oidc.IDToken, error) {
	text, ok := k.token.Extra("id_token").(string)
	if !ok {
		return nil, errors.New("no ID token came")
	}
	k.idToken = text
	return k.provider.Verifier(&oidc.Config{ClientID: k.client}).Verify(ctx, text)
}

// call sends a request with a bearer token. It returns the status and the body.
func call(ctx context.Context, method, url, token, body string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

// expect fails unless a request with a bearer token has this status.
func expect(ctx context.Context, wanted int, url, token string) ([]byte, error) {
	status, body, err := call(ctx, http.MethodGet, url, token, "")
	if err == nil && status != wanted {
		err = fmt.Errorf("%s: status is %d, not %d: %.300s", url, status, wanted, body)
	}
	return body, err
}

func (k *kubelogin) atGateway(ctx context.Context) error {
	if _, err := expect(ctx, http.StatusForbidden, k.gateway+"/others", k.idToken); err != nil {
		return err
	}
	body, err := expect(ctx, http.StatusOK, k.gateway+"/family", k.idToken)
	if err != nil {
		return err
	}
	var seen struct {
		Headers [][2]string `json:"headers"`
	}
	if err := json.Unmarshal(body, &seen); err != nil {
		return err
	}
	named := func(field [2]string) bool {
		return strings.EqualFold(field[0], "X-Forwarded-User") && field[1] == "barbara"
	}
	if !slices.ContainsFunc(seen.Headers, named) {
		return fmt.Errorf("the service received %q", seen.Headers)
	}
	return nil
}

func (k *kubelogin) accessToken(ctx context.Context) error {
	_, err := expect(ctx, http.StatusUnauthorized, k.gateway+"/family", k.token.AccessToken)
	return err
}

func (k *kubelogin) refresh(ctx context.Context) error {
	old, former := *k.token, k.idToken
	old.Expiry = time.Now().Add(-time.Hour)
	fresh, err := k.config.TokenSource(ctx, &old).Token()
	if err != nil {
		return err
	}
	k.token = fresh
	if _, err := k.read(ctx); err != nil {
		return err
	}
	if k.idToken == former {
		return errors.New("the ID token after a refresh is the old one")
	}
	_, err = expect(ctx, http.StatusOK, k.gateway+"/family", k.idToken)
	return err
}

func (k *kubelogin) atCluster(ctx context.Context) error {
	review := `{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`
	url := k.cluster + "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	status, body, err := call(ctx, http.MethodPost, url, k.idToken, review)
	if err != nil {
		return err
	}
	if status != http.StatusCreated {
		return fmt.Errorf("status is %d: %.300s", status, body)
	}
	var seen struct {
		Status struct {
			UserInfo struct {
				Username string   `json:"username"`
				Groups   []string `json:"groups"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &seen); err != nil {
		return err
	}
	user := seen.Status.UserInfo
	if user.Username != "works:barbara" || !slices.Contains(user.Groups, "works:friends of Barbara") {
		return fmt.Errorf("the API server sees %+v", user)
	}
	status, _, err = call(ctx, http.MethodPost, url, k.token.AccessToken, review)
	if err == nil && status != http.StatusUnauthorized {
		err = fmt.Errorf("status with the access token is %d", status)
	}
	return err
}

func (k *kubelogin) permitted(ctx context.Context) error {
	if _, err := expect(ctx, http.StatusOK, k.cluster+"/api/v1/namespaces/default/configmaps", k.idToken); err != nil {
		return err
	}
	_, err := expect(ctx, http.StatusForbidden, k.cluster+"/api/v1/namespaces/default/secrets", k.idToken)
	return err
}
