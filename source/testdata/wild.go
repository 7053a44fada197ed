package main

import (
	"strings"
	"unsafe"
)

// header is what a string is made of.
type header struct {
	at uintptr
	n  int
}

//go:noinline
func wild(s string, v []int64) { sink += len(s) + len(v) }

var sink int

// main passes strings and slices that are none: in no memory, of no length, of more than there is.
func main() {
	h := &header{16, 5}
	wild(*(*string)(unsafe.Pointer(h)), nil)
	text := strings.Repeat("x", 1<<16)
	h = &header{uintptr(unsafe.Pointer(unsafe.StringData(text))), -1}
	v := make([]int64, 1)
	wild(*(*string)(unsafe.Pointer(h)), unsafe.Slice(&v[0], 1<<50))
	println("lived", sink == 5-1+1<<50)
}
