package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

type color uint8

// text and list are values as kprobe prints them: of a long one the beginning.
func text(s string) string {
	if len(s) > 4095 {
		return fmt.Sprintf("%q...", s[:4095])
	}
	return fmt.Sprintf("%q", s)
}

func list[T any](v []T) string {
	var out []string
	for _, x := range v[:min(len(v), 64)] {
		out = append(out, fmt.Sprint(x))
	}
	if len(v) > 64 {
		out = append(out, "...")
	}
	return "{" + strings.Join(out, ",") + "}"
}

type order struct {
	name  string
	sizes []int64
}

//go:noinline
func see(s string, v []int32, b []color) {
	fmt.Printf("see s=%s v=%s b=%s\n", text(s), list(v), list(b))
}

//go:noinline
func take(o *order) { fmt.Printf("take name=%s sizes=%s\n", text(o.name), list(o.sizes)) }

// typed is the type of what an interface has in it.
func typed(v any) string {
	if v == nil {
		return "nil"
	}
	return fmt.Sprintf("%T", v)
}

//go:noinline
func hold(e error, a any, r io.Reader) {
	in := typed(a)
	if n, is := a.(int); is {
		in = fmt.Sprintf("int{%d}", n)
	}
	fmt.Printf("hold e=%s a=%s r=%s\n", failed(e), in, typed(r))
}

// failed is an error's type, with the text of those that are no more than that.
func failed(e error) string {
	if e == nil {
		return typed(e)
	}
	return fmt.Sprintf("%s{%q}", typed(e), e.Error())
}

func main() {
	hold(errors.New("x"), 5, nil)
	hold(nil, nil, os.Stdin)
	hold(fmt.Errorf("%w", io.EOF), []string{}, strings.NewReader(""))
	hold(nil, &order{}, nil)
	see("hello", []int32{1, 2, -3}, []color{7, 255})
	see("", nil, []color{})
	see("a\x00b", make([]int32, 64), make([]color, 65))
	see(strings.Repeat("long ", 2000), make([]int32, 1000), nil)
	take(&order{"first", []int64{1 << 40, -1}})
}
