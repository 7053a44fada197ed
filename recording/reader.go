package recording

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"

	"kprobe/arch"
	"kprobe/event"
)

// Account is the content of a file besides events.
type Account struct {
	Head   Head
	End    *End // nil: the file breaks off
	Losses []Loss
	Faults map[string]uint64 // events of which an argument could not be read, by name
}

// Read reads a recording and hands its events to sink, in the order that they were printed
// in; sink must not keep them. A file that breaks off is no error, and its account has no End.
func Read(r io.Reader, sink func(*event.Event)) (*Account, error) {
	in := bufio.NewReaderSize(r, 1<<20)
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(in, begin); err != nil || string(begin[:6]) != magic[:6] {
		return nil, errors.New("it is no recording of kprobe record")
	}
	if string(begin) != magic {
		return nil, fmt.Errorf("it is a recording of version %q; this program reads %q", begin[6:], magic[6:])
	}
	f := &file{sink: sink, streams: make(map[uint32]*Stream), places: make(map[uint32]map[uint64]*Place), spaces: make(map[uint32]*space)}
	f.account.Faults = make(map[string]uint64)
	var payload bytes.Buffer
	for at := int64(len(magic)); ; at += 8 + int64(payload.Len()) {
		var head [8]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			break
		}
		n, k := binary.LittleEndian.Uint32(head[:]), kind(binary.LittleEndian.Uint32(head[4:]))
		if n >= tooLong {
			return nil, fmt.Errorf("a block of %d bytes at %d: the file is damaged", n, at)
		}
		payload.Reset()
		_, broken := io.CopyN(&payload, in, int64(n))
		if broken != nil && (k != kindRecords || payload.Len() < 4) {
			break
		}
		if err := f.block(k, payload.Bytes()); err != nil { // of records those that are whole
			return nil, fmt.Errorf("the block at %d: %w", at, err)
		}
		if broken != nil {
			break
		}
	}
	for _, s := range f.order {
		s.merge.Emit(true)
	}
	return &f.account, nil
}

// file is the part of a file that was read so far.
type file struct {
	account Account
	sink    func(*event.Event)
	streams map[uint32]*Stream
	places  map[uint32]map[uint64]*Place
	spaces  map[uint32]*space
	order   []*space
}

// space is a Space that was read.
type space struct {
	merge          *Merge
	symbols, comms map[uint64]string
}

// names are Names out of a file.
type names struct {
	space  *space
	places map[uint64]*Place
}

func (n *names) Place(cookie uint64) *Place   { return n.places[cookie] }
func (n *names) Symbol(addr arch.Addr) string { return n.space.symbols[uint64(addr)] }
func (n *names) Comm(tid int) string          { return n.space.comms[uint64(tid)] }

func (f *file) space(id uint32) *space {
	s := f.spaces[id]
	if s == nil {
		s = &space{merge: NewMerge(f.sink), symbols: make(map[uint64]string), comms: make(map[uint64]string)}
		f.spaces[id], f.order = s, append(f.order, s)
	}
	return s
}

// block takes one block. Blocks of unknown kinds are passed over.
func (f *file) block(k kind, payload []byte) error {
	switch k {
	case kindHead:
		return decode(payload, &f.account.Head)
	case kindStream:
		var s stream
		if err := decode(payload, &s); err != nil {
			return err
		}
		if err := s.Format.Check(); err != nil {
			return err
		}
		places := make(map[uint64]*Place)
		st := &Stream{Format: &s.Format, Names: &names{f.space(s.Space), places}}
		st.Faulty = func(cookie uint64) { f.account.Faults[places[cookie].Name]++ }
		f.streams[s.ID], f.places[s.ID] = st, places
	case kindPlace:
		var p placed
		if err := decode(payload, &p); err != nil {
			return err
		}
		if f.places[p.Stream] == nil {
			return fmt.Errorf("a place of stream %d, which is not there", p.Stream)
		}
		f.places[p.Stream][p.Cookie] = &p.Place
	case kindSymbol, kindComm:
		var n named
		if err := decode(payload, &n); err != nil {
			return err
		}
		to := f.space(n.Space).symbols
		if k == kindComm {
			to = f.space(n.Space).comms
		}
		to[n.N] = n.Name
	case kindRecords:
		if len(payload) < 4 {
			return errors.New("records of no stream")
		}
		st := f.streams[binary.LittleEndian.Uint32(payload)]
		if st == nil {
			return fmt.Errorf("records of stream %d, which is not there", binary.LittleEndian.Uint32(payload))
		}
		st.Names.(*names).space.merge.Add(st, payload[4:])
	case kindEvents:
		var m made
		if err := decode(payload, &m); err != nil {
			return err
		}
		for i := range m.Events {
			f.space(m.Space).merge.AddEvent(&m.Events[i])
		}
	case kindLook:
		if len(payload) != 5 {
			return errors.New("a look at no process")
		}
		f.space(binary.LittleEndian.Uint32(payload)).merge.Emit(payload[4] != 0)
	case kindLoss:
		var l Loss
		if err := decode(payload, &l); err != nil {
			return err
		}
		f.account.Losses = append(f.account.Losses, l)
	case kindEnd:
		f.account.End = new(End)
		return decode(payload, f.account.End)
	}
	return nil
}

func decode(payload []byte, to any) error {
	return gob.NewDecoder(bytes.NewReader(payload)).Decode(to)
}
