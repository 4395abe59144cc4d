package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// serve answers until the process is ended.
func serve(address string) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	mux := http.NewServeMux()
	mux.HandleFunc("/who", who)
	mux.HandleFunc("/duplex", duplex)
	mux.HandleFunc("/trailers", trailers)
	mux.HandleFunc("/bytes/{count}", bytesOf)
	mux.HandleFunc("/broken", broken)
	server := &http.Server{Addr: address, Handler: mux, Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

type arrived struct {
	Proto  string
	Method string
	Host   string
	Header http.Header
}

// who reports the request that arrived.
func who(w http.ResponseWriter, r *http.Request) {
	_ = json.NewEncoder(w).Encode(arrived{r.Proto, r.Method, r.Host, r.Header})
}

// duplex sends every part back as soon as it arrives.
func duplex(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	// HTTP/1.1: continue to read after the response has begun; HTTP/2 always can, and reports that
	// the call is not needed
	if err := control.EnableFullDuplex(); err != nil && r.ProtoMajor == 1 {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusOK)
	_ = control.Flush()
	part := make([]byte, 64<<10)
	for {
		n, err := r.Body.Read(part)
		if n > 0 {
			if _, err := w.Write(part[:n]); err != nil {
				return
			}
			_ = control.Flush()
		}
		if err != nil {
			return
		}
	}
}

// trailers returns the request's trailers as its own.
func trailers(w http.ResponseWriter, r *http.Request) {
	count, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Trailer", "X-Count, X-Said")
	fmt.Fprintln(w, "trailers follow")
	// otherwise HTTP/2 would send a length, after which HTTP/1.1 has no place for trailers
	_ = http.NewResponseController(w).Flush()
	w.Header().Set("X-Count", strconv.FormatInt(count, 10))
	w.Header().Set("X-Said", r.Trailer.Get("X-Say"))
}

// bytesOf returns that many bytes.
func bytesOf(w http.ResponseWriter, r *http.Request) {
	count, err := strconv.Atoi(r.PathValue("count"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	part := make([]byte, 32<<10)
	for count > 0 {
		n, err := w.Write(part[:min(count, len(part))])
		if err != nil {
			return
		}
		count -= n
	}
}

// broken ends in the middle of its response.
func broken(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	fmt.Fprint(w, "half")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}
