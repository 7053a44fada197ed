// Package recording keeps the records of probes as they were recorded: in a file, from which
// the events are made later, or for the moment until it is known which event comes next.
//
//	rings --Space.Records--> Writer --file--> Read --+
//	rings --Merge.Add------------------------------- Merge --> events in order of time
//
// A file begins with eight bytes, "kprobe" and the version as two digits. Blocks follow:
// four bytes length of the payload and four bytes kind, little-endian, and the payload.
// Those of records hold them as the target's rings do, behind the number of the stream that
// tells how to read them. All others are a value in the coding of package encoding/gob:
// streams, the probed places, the names of addresses and of threads, events that were made
// without records, losses, the account at the end. A block stands behind all that is needed
// to read it, so that a file that breaks off is read up to there.
package recording

import (
	"time"

	"kprobe/arch"
	"kprobe/event"
	"kprobe/internal/gen"
)

// magic begins a file. A change of the form of blocks, or of the meaning of their values, changes
// the version in it.
const magic = "kprobe01"

// kind is the sort of a block.
type kind uint32

const (
	kindHead    kind = 1 + iota // Head
	kindStream                  // stream
	kindPlace                   // placed
	kindSymbol                  // named: an address
	kindComm                    // named: a thread
	kindRecords                 // u32 stream, then records: bpf.Records
	kindEvents                  // made
	kindLook                    // u32 space, u8 1 if it is the last
	kindLoss                    // Loss
	kindEnd                     // End
)

// Head describes a recording: when, where and of what it was made.
type Head struct {
	Began       time.Time
	Host        string
	Definitions []string
	Processes   []int // empty: a kernel
}

// End is the account at the end of a file.
type End struct {
	Counts []event.Count
	Took   time.Duration
}

// Loss is records of a definition that found no room.
type Loss struct {
	Name     string
	N        uint64
	From, To time.Duration // on the clock of the events
}

// mostLosses are told apart; further ones are added to the last.
const mostLosses = 1000

// AppendLoss adds a loss. A loss that follows one of the same definition at once becomes one with
// it.
func AppendLoss(all []Loss, l Loss) []Loss {
	for i := len(all) - 1; i >= 0; i-- {
		o := &all[i]
		if o.Name == l.Name && (o.To >= l.From || len(all) >= mostLosses) {
			o.N, o.To = o.N+l.N, max(o.To, l.To)
			return all
		}
	}
	return append(all, l)
}

// Place is the probe that the cookie in a record stands for.
type Place struct {
	Group, Name string // of the event
	Return      bool   // a return probe's
	Addr        arch.Addr
	Func        string
	Off, Size   uint64
}

// Names tell what records have as numbers.
type Names interface {
	// Place is the probe of a cookie, nil where there is none.
	Place(cookie uint64) *Place
	// Symbol is "symbol+0xoff/0xsize", or "" for an address in no symbol.
	Symbol(addr arch.Addr) string
	// Comm is a thread's name, "" where it is not known.
	Comm(tid int) string
}

// Stream holds the records of one program, whatever thread runs it.
type Stream struct {
	*gen.Format
	Names

	// Faulty is called with the cookie of an event of which an argument could not be read; nil: it
	// is not called.
	Faulty func(cookie uint64)

	id     uint32
	hit    gen.Hit
	values []event.Value

	placed map[uint64]bool // by cookie: the file has the place
	named  []int           // offsets of arguments that are addresses with names
}

// The values of blocks.
type (
	stream struct {
		ID, Space uint32
		Format    gen.Format
	}
	placed struct {
		Stream uint32
		Cookie uint64
		Place  Place
	}
	named struct {
		Space uint32
		N     uint64
		Name  string
	}
	made struct {
		Space  uint32
		Events []event.Event
	}
)

// tooLong is a length that no block has.
const tooLong = 1 << 30
