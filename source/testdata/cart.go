package main

import "fmt"

type cart struct {
	Name  string
	Total int
}

//go:noinline
func add(c *cart, count, price int) { c.Total += count * price }

func main() {
	c := &cart{Name: "c"}
	add(c, 2, 10)
	add(c, 3, 5)
	fmt.Println(c.Total)
}
