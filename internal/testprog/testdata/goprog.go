// A Go target: goroutines that change threads, stacks that grow and move under
// their frames, panics that unwind them. A round with count N prints the results.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
)

//go:noinline
func goLeaf(a, b int) int { return a*3 + b }

//go:noinline
func goMany(a int, s string, f float64, p *int, rest ...int) (int, error) {
	if len(rest) == 0 {
		return 0, fmt.Errorf("%s %d %g %d", s, a, f, *p)
	}
	return a + len(s) + int(f) + *p + rest[0], nil
}

//go:noinline
func goGrow(n int) int {
	var here [512]byte // 100 levels do not fit in a first stack
	here[n%512] = byte(n)
	if n == 0 {
		return 0
	}
	return goGrow(n-1) + int(here[n%512])&1 + 1
}

//go:noinline
func goPanic(n int) int {
	if n == 0 {
		panic("bottom")
	}
	return goPanic(n-1) + 1
}

//go:noinline
func goRecover(n int) (r int) {
	defer func() { r = len(recover().(string)) }()
	return goPanic(n)
}

func round(n int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	leaf, grown := 0, 0
	for g := range 4 {
		wg.Go(func() {
			sum := 0
			for i := range n {
				sum += goLeaf(g, i)
				if i%64 == 0 {
					runtime.Gosched()
				}
			}
			deep := goGrow(100 + g)
			mu.Lock()
			leaf, grown = leaf+sum, grown+deep
			mu.Unlock()
		})
	}
	wg.Wait()
	one := 1
	many, err := goMany(2, "abc", 4.5, &one, 6)
	_, failed := goMany(2, "abc", 4.5, &one)
	fmt.Println("leaf", leaf)
	fmt.Println("grown", grown)
	fmt.Println("many", many, err, failed)
	fmt.Println("recovered", goRecover(10))
	runtime.GC()
}

func main() {
	fmt.Println("ready")
	n := 1000
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("done") {
		if v, err := strconv.Atoi(in.Text()); err == nil {
			n = v
		}
		round(n)
	}
}
