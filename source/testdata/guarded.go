// Calls of goroutines: stacks that grow, panics that are recovered from, results of several words.
package main

import (
	"errors"
	"fmt"
	"strconv"
)

type request struct {
	path string
	n    int
}

//go:noinline
func grow(n int) int {
	var pad [512]byte
	pad[n%512] = byte(n)
	if n == 0 {
		return int(pad[0])
	}
	return grow(n-1) + int(pad[511])
}

//go:noinline
func parse(s string) (int, error) {
	if s == "" {
		return 0, errors.New("empty")
	}
	return strconv.Atoi(s)
}

//go:noinline
func risky(n int) int {
	if n%2 == 0 {
		panic("even")
	}
	return n
}

//go:noinline
func guarded(n int) (ok bool) {
	defer func() { _ = recover() }()
	risky(n)
	return true
}

//go:noinline
func handle(r *request) (string, error) {
	n, err := parse(r.path)
	if err != nil {
		return "bad", err
	}
	guarded(n)
	grow(40)
	return strconv.Itoa(n), nil
}

func main() {
	done := make(chan bool)
	for g := range 3 {
		go func() {
			for i, p := range []string{strconv.Itoa(g * 2), strconv.Itoa(g*2 + 1), ""} {
				handle(&request{p, i})
			}
			done <- true
		}()
	}
	for range 3 {
		<-done
	}
	fmt.Println("done")
}
