// Package live serves a page that shows what is counted while it is counted: a table of places, how long
// their calls take over time, and the stacks of what runs. The page is one file that loads nothing. It is served on
// loopback only, to browsers that have the link's token.
//
//	live.go    what the page is told: its head, and what each interval brought
//	feed.go    the intervals that are kept, and their readers
//	serve.go   the server: who may read, and how a page is delivered
//	page.*     the page itself
//
// The package knows figures and names. Where they come from is the caller's affair, and so is the time: an
// interval is over when Publish is told.
package live

import "time"

// Head tells what the page is about.
type Head struct {
	Title    string        `json:"title"`   // the process, in some words
	Places   string        `json:"places"`  // what is probed, as it was asked for
	Host     string        `json:"host"`    // the machine
	Began    time.Time     `json:"began"`   // when counting began
	Interval time.Duration `json:"-"`       // of the figures
	NoStacks string        `json:"nostack"` // why there are no stacks of what runs; "" where there are
	Notes    []string      `json:"notes"`   // what else is to be known, such as places that cannot be probed
}

// Row has the hits of one place in an interval.
type Row struct {
	Place  string
	Timed  bool     // its calls are timed
	Total  uint64   // hits since the beginning
	Missed uint64   // since the beginning
	Hits   uint64   // in the interval
	Took   []uint64 // calls in the interval that took 2^i to 2^(i+1)-1 ns
}

// Stack is a stack that was seen so often in an interval, the outermost function first. Where its outermost functions
// are not known, Cut is true.
type Stack struct {
	Frames []string
	Cut    bool
	Seen   uint64
}

// Interval has the figures of one interval. Rows has all places, those without a hit too.
type Interval struct {
	At     time.Duration // its end, since counting began
	Passed time.Duration
	Rows   []Row
	Stacks []Stack
	Lost   uint64 // samples of stacks, since the beginning
}
