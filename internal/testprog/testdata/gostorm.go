// A Go target that does to its stacks what can be done to them: they grow and move
// under their frames and shrink in collections, panics unwind them, goroutines
// end in the middle of calls, and threads are preempted all the time. A round with
// count N prints what N goroutines of each kind came to.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

//go:noinline
func stormLeaf(a, b uint64) uint64 { return a*31 + b }

//go:noinline
func stormGrow(n int, s string, v []byte) (string, int) {
	var here [256]byte
	copy(here[:], v)
	if n == 0 {
		return s, int(here[0])
	}
	r, k := stormGrow(n-1, s, v)
	return r, k + int(here[n%len(v)])
}

//go:noinline
func stormPanic(n int) int {
	if n == 0 {
		panic("bottom")
	}
	return stormPanic(n-1) + 1
}

//go:noinline
func stormFault(p *int) int { return *p + 1 }

//go:noinline
func stormRecover(n int) (r int) {
	defer func() {
		if e := recover(); e != nil {
			r = n
		}
	}()
	if n%5 == 0 {
		return stormFault(nil)
	}
	return stormPanic(n)
}

//go:noinline
func stormAgain(n int) (r int) {
	defer func() {
		recover()
		r = stormRecover(n)
	}()
	return stormPanic(n)
}

//go:noinline
func stormExit(n int, wg *sync.WaitGroup) int {
	if n == 0 {
		runtime.Goexit()
	}
	return stormExit(n-1, wg) + 1
}

//go:noinline
func stormGarbage(n int) int {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d ", i)
	}
	return b.Len()
}

//go:noinline
func stormFloat(a float64, b float32, c complex128) (float64, complex128) {
	return a + float64(b), c * c
}

type pair struct {
	Name  string
	Value int32
	Ok    bool
}

//go:noinline
func stormStruct(p pair, x [1]int16, e error) (pair, error) {
	p.Value += int32(x[0])
	return p, e
}

// A loop that begins at the function's first instruction.
//
//go:noinline
func stormLoop(n uint64) uint64 {
	for n&1 == 0 {
		n >>= 1
	}
	return n
}

// Its entry is its exit.
//
//go:noinline
func stormNothing() {}

//go:noinline
func stormBusy(n int) (sum uint64) {
	stormNothing()
	stormNothing()
	for i := range n {
		sum = stormLeaf(sum, uint64(i))
	}
	return sum
}

func storm(n int) string {
	var grown, recovered, leaf, garbage, loops atomic.Uint64
	var wg sync.WaitGroup
	v := []byte("some bytes to sum up")
	for i := range n {
		wg.Go(func() {
			s, k := stormGrow(i%120, strconv.Itoa(i), v)
			grown.Add(uint64(k + len(s)))
		})
		wg.Go(func() { recovered.Add(uint64(stormRecover(i%40) + stormAgain(i%7))) })
		wg.Go(func() { stormExit(i%20, &wg) })
		wg.Go(func() { leaf.Add(stormBusy(50)) })
		wg.Go(func() { loops.Add(stormLoop(uint64(i+1) << (i % 9))) })
		if i%10 == 0 {
			wg.Go(func() { garbage.Add(uint64(stormGarbage(100))) })
		}
		if i%100 == 99 {
			runtime.GC()
			wg.Wait()
		}
	}
	wg.Wait()
	f, c := stormFloat(1.5, 2.25, complex(3, 4))
	p, err := stormStruct(pair{"seven", 7, true}, [1]int16{-3}, nil)
	return fmt.Sprint(grown.Load(), recovered.Load(), leaf.Load(), garbage.Load(), loops.Load(), f, c, p, err)
}

func main() {
	fmt.Println("ready")
	n := 100
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("done") {
		if v, err := strconv.Atoi(in.Text()); err == nil {
			n = v
		}
		fmt.Println("storm", storm(n))
	}
}
