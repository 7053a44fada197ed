// Values that have parts: structs, slices of what has parts, maps, channels, errors.
package main

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"
)

type inner struct {
	a, b int32
	f    float64
}

type item struct {
	name string
	tags []string
	in   inner
	m    map[string]int
	ch   chan int
	err  error
	any  any
	grid [2][2]int
	pts  []inner
}

var quiet, _ = os.Open(os.DevNull)

//go:noinline
func show(it *item, ss []string, m map[int]bool, ch chan string, err error) (inner, []string, error) {
	fmt.Fprintln(quiet, it.name, len(ss), len(m), ch, err)
	return it.in, ss, err
}

// boxes has values of all sorts in interfaces.
//
//go:noinline
func boxes(q string, args ...any) any {
	fmt.Fprintln(quiet, q, len(args))
	return len(args)
}

// wild has slices that are none.
//
//go:noinline
func wild(it *item) {
	fmt.Fprintln(quiet, unsafe.Pointer(it))
}

func main() {
	it := item{name: "one", tags: []string{"x", "", "zz"}, in: inner{1, 2, 2.5}, m: map[string]int{"a": 1, "b": 2}, ch: make(chan int, 3),
		err: errors.New("bad thing"), any: 5, grid: [2][2]int{{1, 2}, {3, 4}}, pts: []inner{{1, 1, 1}, {2, 2, 2}}}
	it.ch <- 1
	show(&it, nil, nil, make(chan string, 4), nil)
	show(&it, []string{"p", "q", "r", "s", "t", "u", "v"}, map[int]bool{1: true}, nil, fmt.Errorf("wrapped: %w", errors.New("in")))

	boxes("numbers", 1<<40, int64(-2), uint64(1)<<63, int32('x'), 2.5)
	boxes("texts", "", "abc", true, time.Second, errors.New("bad"), 7)
	boxes("others", nil, []byte("x"), &it.in, fmt.Errorf("wrapped: %w", os.ErrClosed), it.in)

	words := make([]uintptr, unsafe.Sizeof(it)/8)
	words[0], words[1], words[2], words[3] = *(*uintptr)(unsafe.Pointer(&it.any)), 0x10, 0x10, 0x10
	boxes("wild", unsafe.Slice((*any)(unsafe.Pointer(&words[0])), 2)...)

	for i := range words {
		words[i] = 0x10
	}
	wild((*item)(unsafe.Pointer(&words[0])))
}
