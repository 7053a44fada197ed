// A Go program that calls C. The C function calls none itself, and has its values below the stack pointer.
package main

/*
#cgo CFLAGS: -O2

__attribute__((noinline)) long cgo_leaf(long a, long b) {
	volatile long v[12];
	for (int i = 0; i < 12; i++)
		v[i] = a + i;
	long sum = b;
	for (int i = 0; i < 12; i++)
		sum += v[i];
	return sum;
}
*/
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
)

//go:noinline
func leaf(a, b int) int { return int(C.cgo_leaf(C.long(a), C.long(b))) }

func main() {
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("done") {
		n, err := strconv.Atoi(in.Text())
		if err != nil {
			continue
		}
		wrong := 0
		for i := range n {
			if leaf(i, 7) != 12*i+66+7 {
				wrong++
			}
		}
		fmt.Println("wrong", wrong)
	}
}
