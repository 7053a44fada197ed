// Values that have parts: structs, slices of what has parts, maps, channels, errors.
package main

import (
	"errors"
	"fmt"
	"os"
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

	words := make([]uintptr, unsafe.Sizeof(it)/8)
	for i := range words {
		words[i] = 0x10
	}
	wild((*item)(unsafe.Pointer(&words[0])))
}
