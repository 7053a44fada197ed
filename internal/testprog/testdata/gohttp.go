// An HTTP server of Go's own making: what answers depends on the question only. It prints
// "ready" and its address; /served tells how often note was called.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

var served atomic.Int64

// note has no frame: it is entered once a call, whatever becomes of its stack.
//
//go:noinline
func note() { served.Add(1) }

func number(r *http.Request) int {
	n, _ := strconv.Atoi(r.URL.Query().Get("n"))
	return n
}

// hashes has goroutines of its own, which send on a channel.
func hashes(w http.ResponseWriter, r *http.Request) {
	note()
	n := number(r)
	out := make(chan string)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { out <- fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i), byte(n)})) })
	}
	go func() { wg.Wait(); close(out) }()
	var all []string
	for s := range out {
		all = append(all, s)
	}
	sort.Strings(all)
	json.NewEncoder(w).Encode(all)
}

// packed is there and back again.
func packed(w http.ResponseWriter, r *http.Request) {
	note()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, strings.Repeat(r.URL.Path, number(r)))
	z.Close()
	back, err := gzip.NewReader(&b)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	io.Copy(w, back)
}

func deep(n int) int {
	var here [256]byte
	if here[n%256]++; n == 0 {
		panic("the bottom")
	}
	return deep(n-1) + int(here[n%256])
}

// fails grows its stack, panics at the bottom of it, and collects what is left.
func fails(w http.ResponseWriter, r *http.Request) {
	note()
	defer func() {
		what := recover()
		runtime.GC()
		http.Error(w, fmt.Sprint(what), http.StatusTeapot)
	}()
	deep(number(r))
}

func main() {
	http.HandleFunc("/hashes", hashes)
	http.HandleFunc("/packed", packed)
	http.HandleFunc("/fails", fails)
	http.HandleFunc("/served", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, served.Load()) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready", l.Addr())
	go func() { fmt.Println(http.Serve(l, nil)) }()
	io.Copy(io.Discard, os.Stdin)
}
