package main

import (
	"time"

	"kprobe/trace"
)

// beside reads counts on a goroutine of its own, so that a key is answered at once: to read those of thousands of
// places takes a while, and so does to place the probe that counts callers.
type beside struct {
	got chan figures // one for each that was wanted

	wanted chan string // the place whose callers are wanted
	ended  chan struct{}
	read   func(place string) figures
}

// figures are counts as of one moment.
type figures struct {
	rows    []topRow
	callers calledBy
	passed  time.Duration // since the ones before
	err     error
}

// countBeside reads those of places; their callers, where these are looked at.
func countBeside(stats []*trace.Stat, callers bool) *beside {
	c := counting{stats: stats, at: time.Now()}
	if callers {
		c.callers = &callersOf{stats: stats}
	}
	return readBeside(c.read)
}

func readBeside(read func(place string) figures) *beside {
	b := &beside{got: make(chan figures, 1), wanted: make(chan string, 1), ended: make(chan struct{}), read: read}
	go func() {
		defer close(b.ended)
		for place := range b.wanted {
			b.got <- b.read(place)
		}
	}()
	return b
}

// want has counts read, once more where some are being read.
func (b *beside) want(place string) {
	select {
	case b.wanted <- place:
	default:
	}
}

// counting makes figures of what has been counted since the last ones.
type counting struct {
	stats   []*trace.Stat
	callers *callersOf // nil: they are not looked at
	before  []trace.StatRow
	at      time.Time
}

func (c *counting) read(place string) (now figures) {
	counts, err := rowsOf(c.stats)
	if err != nil {
		return figures{err: err}
	}
	now.passed = time.Since(c.at)
	c.at = time.Now()
	now.rows, c.before = topRows(counts, c.before, now.passed), counts
	if c.callers != nil && place != "" {
		now.callers = c.callers.of(place)
	}
	return now
}

// last are the counts of the end. Nothing is read afterwards.
func (b *beside) last() figures {
	b.close()
	return b.read("")
}

// close waits until nothing is read any more.
func (b *beside) close() {
	select {
	case <-b.ended:
		return
	default:
	}
	close(b.wanted)
	for {
		select {
		case <-b.got:
		case <-b.ended:
			return
		}
	}
}
