package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// way is one way through the gateway.
type way struct {
	name   string
	base   string
	major  int
	client *http.Client
}

// verdict is a line of output.
type verdict struct {
	Check   string  `json:"check"`
	Seconds float64 `json:"seconds"`
	Fault   string  `json:"fault,omitempty"`
}

func runChecks() error {
	ways, err := waysIn()
	if err != nil {
		return err
	}
	checks := []struct {
		name string
		run  func(way, string) error
	}{
		{"request and identity", request},
		{"a stream both ways, 1000 turns", turns},
		{"100 requests at once", atOnce},
		{"8 MiB up and back down", large},
		{"trailers both ways", trailersBothWays},
		{"an answer that breaks off is an error", breaksOff},
		{"abandoned answers leave room for others", abandoned},
	}
	output := json.NewEncoder(os.Stdout)
	line := verdict{Check: "a handshake whose only group is X25519MLKEM768"}
	if err := postQuantum(); err != nil {
		line.Fault = err.Error()
	}
	if err := output.Encode(line); err != nil {
		return err
	}
	for _, through := range ways {
		for _, upstream := range []struct{ path, speaks string }{{"/go-1", "HTTP/1.1"}, {"/go-2", "HTTP/2"}} {
			for _, check := range checks {
				began := time.Now()
				line := verdict{Check: fmt.Sprintf("%s, %s to %s", check.name, through.name, upstream.speaks)}
				if err := check.run(through, through.base+upstream.path); err != nil {
					line.Fault = err.Error()
				}
				line.Seconds = time.Since(began).Seconds()
				if err := output.Encode(line); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// authorities are the certificate authorities of the gateway.
func authorities() (*x509.CertPool, error) {
	authority, err := os.ReadFile(os.Getenv("CLIENTS_CA"))
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		return nil, errors.New("CLIENTS_CA holds no certificate")
	}
	return trusted, nil
}

// postQuantum is a handshake with a client that offers only a key exchange that resists quantum
// computers.
func postQuantum() error {
	trusted, err := authorities()
	if err != nil {
		return err
	}
	groups := []tls.CurveID{tls.X25519MLKEM768}
	config := &tls.Config{RootCAs: trusted, CurvePreferences: groups, MinVersion: tls.VersionTLS13}
	connection, err := tls.Dial("tcp", os.Getenv("CLIENTS_SECURE"), config)
	if err != nil {
		return err
	}
	return connection.Close()
}

// waysIn are HTTP/1.1, HTTP/2 in plain text, and HTTP/2 over TLS.
func waysIn() ([]way, error) {
	trusted, err := authorities()
	if err != nil {
		return nil, err
	}
	over := func(set func(*http.Protocols)) *http.Client {
		protocols := new(http.Protocols)
		set(protocols)
		transport := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{RootCAs: trusted}}
		return &http.Client{Transport: transport, Timeout: 30 * time.Second}
	}
	plain, secure := "http://"+os.Getenv("CLIENTS_PLAIN"), "https://"+os.Getenv("CLIENTS_SECURE")
	return []way{
		{"HTTP/1.1", plain, 1, over(func(p *http.Protocols) { p.SetHTTP1(true) })},
		{"h2c", plain, 2, over(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })},
		{"h2 over TLS", secure, 2, over(func(p *http.Protocols) { p.SetHTTP2(true) })},
	}, nil
}

// do sends a request with the token and insists on 200 and the way's version.
func (w way) do(request *http.Request) (*http.Response, error) {
	request.Header.Set("Authorization", "Bearer "+os.Getenv("CLIENTS_TOKEN"))
	response, err := w.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK || response.ProtoMajor != w.major {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		return nil, fmt.Errorf("%s over %s: %s", response.Status, response.Proto, text)
	}
	return response, nil
}

// all sends a request and reads the whole response.
func (w way) all(method, url string, body io.Reader) (*http.Response, []byte, error) {
	request, err := http.NewRequest(method, url, body)
	if err != nil {
		return nil, nil, err
	}
	response, err := w.do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response, content, err
}

func request(w way, base string) error {
	_, content, err := w.all("GET", base+"/who", nil)
	if err != nil {
		return err
	}
	var seen arrived
	if err := json.Unmarshal(content, &seen); err != nil {
		return err
	}
	if users := seen.Header["X-Forwarded-User"]; len(users) != 1 || users[0] != "alice" {
		return fmt.Errorf("X-Forwarded-User at the upstream: %q", users)
	}
	if seen.Header.Get("Authorization") != "" {
		return errors.New("the token arrived at the upstream")
	}
	return nil
}

// turns sends each line only after the previous one has come back.
func turns(w way, base string) error {
	reader, writer := io.Pipe()
	defer writer.Close()
	request, err := http.NewRequest("POST", base+"/duplex", reader)
	if err != nil {
		return err
	}
	if w.major == 1 {
		// net/http starts to read an HTTP/1.1 response only after a first part of the body was sent
		go fmt.Fprintln(writer, "begin")
	}
	response, err := w.do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	if w.major == 1 {
		if line, err := lines.ReadString('\n'); line != "begin\n" {
			return fmt.Errorf("the first line came back as %q (%v)", line, err)
		}
	}
	for turn := range 1000 {
		sent := fmt.Sprintf("turn %d\n", turn)
		if _, err := io.WriteString(writer, sent); err != nil {
			return err
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("turn %d: %w", turn, err)
		}
		if line != sent {
			return fmt.Errorf("turn %d came back as %q", turn, line)
		}
	}
	writer.Close()
	rest, err := io.ReadAll(lines)
	if err == nil && len(rest) != 0 {
		err = fmt.Errorf("after the last turn came %q", rest)
	}
	return err
}

func atOnce(w way, base string) error {
	faults := make(chan error, 100)
	var group sync.WaitGroup
	for number := range 100 {
		group.Add(1)
		go func() {
			defer group.Done()
			sent := bytes.Repeat([]byte{byte(number)}, 1000*number)
			_, content, err := w.all("POST", base+"/duplex", bytes.NewReader(sent))
			if err == nil && !bytes.Equal(content, sent) {
				err = fmt.Errorf("request %d: %d bytes came back, not the %d sent", number, len(content), len(sent))
			}
			if err != nil {
				faults <- err
			}
		}()
	}
	group.Wait()
	close(faults)
	return <-faults
}

func large(w way, base string) error {
	sent := make([]byte, 8<<20)
	if _, err := rand.Read(sent); err != nil {
		return err
	}
	_, content, err := w.all("POST", base+"/duplex", bytes.NewReader(sent))
	if err != nil {
		return err
	}
	if !bytes.Equal(content, sent) {
		return fmt.Errorf("%d bytes came back, or others", len(content))
	}
	return nil
}

func trailersBothWays(w way, base string) error {
	// an unknown length, because HTTP/1.1 has trailers only after chunks
	body := io.MultiReader(bytes.NewReader(make([]byte, 10_000)))
	request, err := http.NewRequest("POST", base+"/trailers", body)
	if err != nil {
		return err
	}
	request.Header.Set("TE", "trailers")
	request.Trailer = http.Header{"X-Say": []string{"hello"}}
	response, err := w.do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	count, said := response.Trailer.Get("X-Count"), response.Trailer.Get("X-Said")
	if count != "10000" || said != "hello" {
		return fmt.Errorf("trailers X-Count %q and X-Said %q, not 10000 and hello", count, said)
	}
	return nil
}

func breaksOff(w way, base string) error {
	_, content, err := w.all("GET", base+"/broken", nil)
	if err == nil {
		return fmt.Errorf("half an answer was taken for a whole one: %q", content)
	}
	// and the connection stays open for other requests
	_, _, err = w.all("GET", base+"/bytes/10", nil)
	return err
}

// abandoned cancels 40 large responses after their first byte. Over HTTP/2 the connection's window
// must not leak.
func abandoned(w way, base string) error {
	for range 40 {
		request, err := http.NewRequest("GET", base+"/bytes/5000000", nil)
		if err != nil {
			return err
		}
		response, err := w.do(request)
		if err != nil {
			return err
		}
		_, err = io.ReadFull(response.Body, make([]byte, 1))
		response.Body.Close()
		if err != nil {
			return err
		}
	}
	_, content, err := w.all("GET", base+"/bytes/3000000", nil)
	if err == nil && len(content) != 3_000_000 {
		err = fmt.Errorf("%d bytes came, not 3000000", len(content))
	}
	return err
}
