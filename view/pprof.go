package view

import (
	"compress/gzip"
	"io"
	"slices"
	"time"
)

// Field numbers of perftools.profiles.Profile (profile.proto of github.com/google/pprof).
const (
	profileSampleType  = 1
	profileSample      = 2
	profileLocation    = 4
	profileFunction    = 5
	profileStringTable = 6
	profileTime        = 9
	profileDuration    = 10

	valueTypeType = 1
	valueTypeUnit = 2

	sampleLocation = 1
	sampleValue    = 2
	sampleLabel    = 3

	labelKey = 1
	labelStr = 2
	labelNum = 3

	locationID     = 1
	locationLine   = 4
	lineFunction   = 1
	functionID     = 1
	functionName   = 2
	functionSystem = 3
)

// WritePprof writes a profile that go tool pprof opens: of each stack how often it was seen and the time
// spent there, if any was, with the thread as a label. began and took are about the whole.
func (t *Tree) WritePprof(to io.Writer, began time.Time, took time.Duration) error {
	p := profile{texts: make(map[string]uint64), functions: make(map[string]uint64)}
	p.index("")
	threads := t.Threads()
	p.timed = slices.ContainsFunc(threads, func(th Thread) bool { return timed(th.Roots) })
	p.valueType("calls", "count")
	if p.timed { // pprof shows the last kind, if it is not asked for another
		p.valueType("time", "nanoseconds")
	}
	for _, th := range threads {
		for _, n := range th.Roots {
			p.samples(&th, n, nil)
		}
	}
	for _, s := range p.table {
		p.out.text(profileStringTable, s)
	}
	if !began.IsZero() {
		p.out.number(profileTime, uint64(began.UnixNano()))
	}
	p.out.number(profileDuration, uint64(took))
	z := gzip.NewWriter(to)
	if _, err := z.Write(p.out); err != nil {
		return err
	}
	return z.Close()
}

type profile struct {
	out       message
	table     []string
	texts     map[string]uint64 // their indexes in the table
	functions map[string]uint64 // their ids, which are their locations', too
	timed     bool              // time is a kind of value
}

func (p *profile) index(s string) uint64 {
	i, ok := p.texts[s]
	if !ok {
		i = uint64(len(p.table))
		p.texts[s], p.table = i, append(p.table, s)
	}
	return i
}

func (p *profile) valueType(name, unit string) {
	var m message
	m.number(valueTypeType, p.index(name))
	m.number(valueTypeUnit, p.index(unit))
	p.out.bytes(profileSampleType, m)
}

func (p *profile) location(name string) uint64 {
	id, ok := p.functions[name]
	if ok {
		return id
	}
	id = uint64(len(p.functions) + 1)
	p.functions[name] = id
	var f, line, loc message
	f.number(functionID, id)
	f.number(functionName, p.index(name))
	f.number(functionSystem, p.index(name))
	p.out.bytes(profileFunction, f)
	line.number(lineFunction, id)
	loc.number(locationID, id)
	loc.bytes(locationLine, line)
	p.out.bytes(profileLocation, loc)
	return id
}

// samples writes a node and what is below it. callers are its locations, the outermost first.
func (p *profile) samples(th *Thread, n *Node, callers []uint64) {
	stack := append(callers, p.location(n.Name))
	var s message
	for i := len(stack) - 1; i >= 0; i-- { // the innermost first
		s.number(sampleLocation, stack[i])
	}
	s.number(sampleValue, n.Calls)
	if p.timed {
		s.number(sampleValue, uint64(n.Self()))
	}
	var name, id message
	name.number(labelKey, p.index("thread"))
	name.number(labelStr, p.index(th.Comm))
	s.bytes(sampleLabel, name)
	id.number(labelKey, p.index("tid"))
	id.number(labelNum, uint64(th.TID))
	s.bytes(sampleLabel, id)
	p.out.bytes(profileSample, s)
	for _, k := range n.Kids {
		p.samples(th, k, stack)
	}
}
