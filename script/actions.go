package script

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/host"
	"kprobe/script/calls"
	"kprobe/script/output"
	"kprobe/script/plan"
	"kprobe/script/syntax"
	"kprobe/script/types"
	"kprobe/symbol"
)

// record is what a program sent, and when.
type record struct {
	time uint64
	data []byte
}

// drain acts on the records that are there, those of all threads in the order of their
// times.
func (r *Run) drain() error {
	if r.holding {
		return nil
	}
	if err := r.collect(r.reader); err != nil {
		return err
	}
	for _, t := range r.all() {
		if t.reader != nil {
			if err := r.collect(t.reader); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(r.waiting, func(a, b record) int {
		switch {
		case a.time < b.time:
			return -1
		case a.time > b.time:
			return 1
		}
		return 0
	})
	all := r.waiting
	r.busy = len(all) > 0
	r.waiting = nil
	for _, rec := range all {
		if r.exiting {
			break // what comes behind exit() is not acted on
		}
		if err := r.act(rec.data); err != nil {
			return err
		}
	}
	return errors.Join(r.tellLost(), r.tellLosses(false), r.tellMissed(false))
}

// collect takes the records of a ring.
func (r *Run) collect(from *bpf.Reader) error {
	for {
		rec, more, err := from.Read()
		if err != nil || !more {
			return err
		}
		if len(rec.Data) >= plan.RecordArgs {
			r.waiting = append(r.waiting, record{binary.LittleEndian.Uint64(rec.Data[plan.RecordTime:]), rec.Data})
		}
	}
}

// tellLost says how many events found no room since it was last said.
func (r *Run) tellLost() error {
	n := r.reader.Lost() + r.lostBefore
	for _, t := range r.all() {
		if t.reader != nil {
			n += t.reader.Lost()
		}
	}
	if n == r.lost {
		return nil
	}
	fresh := n - r.lost
	r.lost = n
	if r.s.opts.JSON {
		_, err := fmt.Fprintf(r.s.opts.Output, "{\"type\": \"lost_events\", \"count\": %d, \"data\": {\"events\": %[1]d}}\n", fresh)
		return err
	}
	_, err := fmt.Fprintf(r.s.opts.Errors, "Lost %d events\n", fresh)
	return err
}

// tellLosses says where maps could not be changed, and where it was divided by 0: at once where that is for the first
// time, and at the end how often more.
func (r *Run) tellLosses(end bool) error {
	if len(r.s.plan.Losses) == 0 {
		return nil
	}
	value, err := r.mapOf(plan.LossName).Lookup(make([]byte, 4))
	if err != nil {
		return err
	}
	if r.told == nil {
		r.told = make([]bool, len(r.s.plan.Losses))
	}
	for i, l := range r.s.plan.Losses {
		n := binary.LittleEndian.Uint64(value[8*(i+1):])
		if n > 0 && !r.told[i] {
			r.told[i] = true
			if err := r.tellLoss(l); err != nil {
				return err
			}
		}
		if end && n > 1 && l.Map != "" && !r.s.opts.NoWarnings {
			if _, err := fmt.Fprintf(r.s.opts.Errors, "%s: WARNING: %d more changes of %s were refused here\n", r.s.plan.Source.Place(l.At), n-1, l.Map); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellLoss says what went wrong at a place.
func (r *Run) tellLoss(l *plan.Loss) error {
	const update = "map_update_elem"
	switch {
	case l.Map != "" && l.Busy:
		return r.helperFailed(l.At, update, output.Errno(syscall.EBUSY), -int64(syscall.EBUSY))
	case l.Map != "":
		return r.helperFailed(l.At, update, "Map full; can't update element. Try increasing max_map_keys config or manually setting the max entries in a map declaration e.g. `let @a = hash(5000)`", -int64(syscall.E2BIG))
	}
	e := &syntax.Error{Span: l.At, Warning: true, Source: r.s.plan.Source,
		Msg: "Divide or modulo by 0 detected. This can lead to unexpected results. 1 is being used as the result."}
	if l.Elements > 0 {
		e.Msg = fmt.Sprintf("Array access out of bounds detected: the array has %d elements. 0 is being used as the result.", l.Elements)
	}
	switch {
	case r.s.opts.JSON:
		return r.placed("runtime_error", l.At, e.Msg, "")
	case r.s.opts.NoWarnings:
		return nil
	}
	_, err := fmt.Fprintln(r.s.opts.Errors, e)
	return err
}

// act does what a record asks for.
func (r *Run) act(rec []byte) error {
	id := binary.LittleEndian.Uint64(rec[plan.RecordID:])
	if id >= uint64(len(r.s.plan.Actions)) {
		return errors.New("a record of no action: the target has written over its ring")
	}
	a := r.s.plan.Actions[id]
	args := rec[plan.RecordArgs:]
	size := 0
	for _, t := range a.Args {
		size += t.Slot()
	}
	if len(args) < size {
		return errors.New("a record is too short: the target has written over its ring")
	}
	number := func(i int, otherwise uint64) uint64 {
		if i >= len(a.Args) {
			return otherwise
		}
		return binary.LittleEndian.Uint64(args[8*i:])
	}
	switch a.Kind {
	case plan.Printf:
		return r.say("printf", r.names.Printf(a.Format, a.Args, args))
	case plan.Errorf, plan.Warnf:
		return r.complain(a, r.names.Printf(a.Format, a.Args, args))
	case plan.PrintMap:
		return r.printMap(a.Map, number(0, 0), number(1, 1), true)
	case plan.PrintValue:
		if r.s.opts.JSON {
			return r.write(output.Event("value", r.names.JSON(a.Args[0], args, 1)))
		}
		return r.write(r.names.Value(a.Args[0], args))
	case plan.Clear:
		return r.clear(a.Map)
	case plan.Zero:
		return r.zero(a.Map)
	case plan.Exit:
		code := 0
		if len(a.Args) == 0 && a.Code != 0 {
			code = a.Code
		} else {
			code = int(int32(number(0, 0)))
		}
		r.exiting, r.code = true, code
	case plan.Clock:
		return r.say("time", output.Strftime(time.Now(), a.Format))
	case plan.Cat:
		name := r.names.Printf(a.Format, a.Args, args)
		text, err := os.ReadFile(name)
		if err != nil {
			_, err = fmt.Fprintf(r.s.opts.Errors, "ERROR: failed to open file '%s' (%s)\n", name, output.Errno(err))
			return err
		}
		return r.say("cat", string(text[:min(len(text), r.s.plan.Settings.MaxCatBytes)]))
	case plan.Join:
		var all []string
		for _, t := range a.Args {
			text, _ := output.Cut(t, args)
			if text == "" {
				break
			}
			all = append(all, text)
			args = args[t.Slot():]
		}
		text := strings.Join(all, a.Format)
		if !r.s.opts.JSON {
			text += "\n"
		}
		return r.say("join", text)
	case plan.Failed:
		return r.tellFailed(a, int64(number(0, 0)))
	case plan.Unwatch:
		for _, t := range r.all() {
			if err := t.unwatch(number(0, 0)); err != nil {
				return err
			}
		}
	case plan.Signal:
		return r.signal(a, syscall.Signal(number(0, 0)), number(1, 0))
	case plan.System:
		out, err := exec.Command("/bin/sh", "-c", r.names.Printf(a.Format, a.Args, args)).Output()
		if err != nil && len(out) == 0 {
			_, err = fmt.Fprintf(r.s.opts.Errors, "WARNING: system(): %v\n", err)
			return err
		}
		return r.say("syscall", string(out))
	}
	return nil
}

// tellFailed says what a helper could not do, and where.
func (r *Run) tellFailed(a *plan.Action, code int64) error {
	what := "Can't lookup map element because it does not exist."
	switch {
	case a.Format == plan.DeleteFailed:
		what = "Can't delete map element because it does not exist."
	case code < 0:
		what = output.Errno(syscall.Errno(-code))
	}
	return r.helperFailed(a.At, a.Format, what, code)
}

// helperFailed says what a helper could not do: in JSON by the error's name alone.
func (r *Run) helperFailed(at syntax.Span, helper, what string, code int64) error {
	switch {
	case r.s.opts.JSON:
		return r.placed("helper_error", at, output.Errno(syscall.Errno(max(-code, 0))), fmt.Sprintf(", \"helper\": %s, \"retcode\": %d", output.Quote(helper), code))
	case r.s.opts.NoWarnings:
		return nil
	}
	e := &syntax.Error{Span: at, Warning: true, Source: r.s.plan.Source, Msg: fmt.Sprintf("%s\nAdditional Info - helper: %s, retcode: %d", what, helper, code)}
	_, err := fmt.Fprintln(r.s.opts.Errors, e)
	return err
}

// signal sends one to the target's process or thread, which may be gone, or to our own where the probe is of ours. The target
// can write what it likes into the records: no other process is sent any.
func (r *Run) signal(a *plan.Action, sig syscall.Signal, ids uint64) error {
	pid, tid := int(ids>>32), int(uint32(ids))
	if !a.Thread {
		tid = 0
	}
	var err error
	if target := slices.ContainsFunc(r.all(), func(t *target) bool { return pid == r.pidOf(t) }); !target && pid != os.Getpid() {
		err = fmt.Errorf("process %d is not the target", pid)
	} else {
		err = host.Signal(pid, tid, sig)
	}
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		_, err = fmt.Fprintf(r.s.opts.Errors, "%s:%d: WARNING: signal %d could not be sent: %v\n", r.s.plan.Source.PartName(a.At.From), r.s.plan.Source.Line(a.At.From), sig, err)
		return err
	}
	return nil
}

func (r *Run) write(text string) error {
	_, err := io.WriteString(r.s.opts.Output, text)
	return err
}

// say writes what a script prints, as an object where that is asked for.
func (r *Run) say(kind, text string) error {
	if r.s.opts.JSON {
		text = output.Event(kind, output.Quote(text))
	}
	return r.write(text)
}

// placed writes what went wrong at a place of the script as an object: in JSON it is among the output.
func (r *Run) placed(kind string, at syntax.Span, text, more string) error {
	src := r.s.plan.Source
	line, col := src.Position(at.From)
	return r.write(fmt.Sprintf("{\"type\": %s, \"msg\": %s%s, \"filename\": %s, \"line\": %d, \"col\": %d}\n",
		output.Quote(kind), output.Quote(text), more, output.Quote(src.PartName(at.From)), line, col))
}

// complain is errorf and warnf: with the place, and as text not among the output.
func (r *Run) complain(a *plan.Action, text string) error {
	kind := "WARNING"
	if a.Kind == plan.Errorf {
		kind = "ERROR"
	} else if r.s.opts.NoWarnings {
		return nil
	}
	if r.s.opts.JSON {
		return r.placed(map[string]string{"ERROR": "errorf", "WARNING": "warnf"}[kind], a.At, text, "")
	}
	_, err := fmt.Fprintf(r.s.opts.Errors, "%s: %s: %s\n", r.s.plan.Source.Place(a.At), kind, strings.TrimSuffix(text, "\n"))
	return err
}

// snapshot reads a map.
func (r *Run) snapshot(m *plan.Map) *output.Map {
	out := &output.Map{Name: m.Name, Key: m.Key, Value: m.Value}
	for key, threads := range r.mapOf(m.Name).All() {
		if m.Key != nil {
			out.Entries = append(out.Entries, output.Entry{Key: key, Value: threads[0]})
			continue
		}
		var values [][]byte
		gone := false
		for _, v := range threads {
			switch binary.LittleEndian.Uint64(v) {
			case plan.KeylessSet:
				values = append(values, v[plan.KeylessHeader:])
			case plan.KeylessGone:
				gone = true
			}
		}
		if len(values) == 0 && !gone && m.Value.Aggregate() && m.Value.Kind < types.Hist {
			values = [][]byte{make([]byte, m.Value.Slot())} // nothing counted is 0
		}
		if len(values) > 0 {
			value := values[0]
			if len(values) > 1 {
				value = output.Reduce(m.Value, values)
			}
			out.Entries = append(out.Entries, output.Entry{Value: value})
		}
	}
	out.Sort()
	return out
}

// printMap prints a map; of one that is empty nothing, unless it is asked for and has no key: it is 0 then.
func (r *Run) printMap(m *plan.Map, top, div uint64, asked bool) error {
	s := r.snapshot(m)
	if asked && m.Key == nil && len(s.Entries) == 0 && (m.Value.Scalar() || m.Value.Aggregate() && m.Value.Kind < types.Hist) {
		s.Entries = []output.Entry{{Value: make([]byte, m.Value.Slot())}}
	}
	if m.Value.Kind == types.Stats {
		top, div = 0, 1
	}
	s.Top(top)
	if len(s.Entries) == 0 {
		return nil
	}
	if r.s.opts.JSON {
		return r.names.WriteJSON(r.s.opts.Output, s, div)
	}
	return r.names.WriteText(r.s.opts.Output, s, div)
}

// clear takes all elements out of a map.
func (r *Run) clear(m *plan.Map) error {
	bm := r.mapOf(m.Name)
	if m.Key == nil {
		value := make([]byte, m.Spec.ValueSize)
		value[0] = plan.KeylessGone
		return bm.Update(make([]byte, 4), value, bpf.UpdateAny)
	}
	for key := range bm.All() {
		err := bm.Delete(key)
		if err == nil && m.Count >= 0 {
			err = r.mapOf(plan.CountName).AddWord(make([]byte, 4), m.Count, ^uint64(0))
		}
		if err != nil && !errors.Is(err, bpf.ErrNotExist) {
			return err
		}
	}
	return nil
}

// zero makes all values 0, and keeps the keys.
func (r *Run) zero(m *plan.Map) error {
	bm := r.mapOf(m.Name)
	value := make([]byte, m.Spec.ValueSize)
	if m.Key == nil {
		value[0] = plan.KeylessSet
		return bm.Update(make([]byte, 4), value, bpf.UpdateAny)
	}
	for key := range bm.All() {
		if err := bm.Update(key, value, bpf.UpdateExist); err != nil && !errors.Is(err, bpf.ErrNotExist) {
			return err
		}
	}
	return nil
}

// newNames finds words for numbers in the session's target.
func (r *Run) newNames() *output.Names {
	boot := host.Boot.Now()
	began := time.Now()
	users := map[uint32]string{}
	named := func(addr uint64, offset bool) string {
		space, addr := r.where(addr)
		if space != nil {
			if loc, ok := space.At(arch.Addr(addr)); ok {
				if !offset {
					return loc.Func.Label()
				}
				return fmt.Sprintf("%s+%d", loc.Func.Label(), loc.Off)
			}
		}
		return fmt.Sprintf("0x%x", addr)
	}
	plain := func(addr uint64) string { return named(addr, false) }
	return &output.Names{
		USym: plain, KSym: plain, Trailer: r.s.plan.Settings.TruncTrailer,
		Call: func(number uint64) string { return calls.Name(int(number)) },
		User: func(id uint32) string {
			if _, ok := users[id]; !ok {
				users[id] = userName(id)
			}
			return users[id]
		},
		Probe:  r.probeName,
		Cgroup: cgroupPath,
		Wall:   func(at uint64) time.Time { return began.Add(time.Duration(at - boot)) },
		TAI:    func(at uint64) time.Time { return began.Add(time.Duration(at - r.atomic - boot)) },
		Stack:  func(id uint64, t *types.Type) string { return r.stack(id, t, named) },
	}
}

// where is the process of an address, and the address there. Of several, its number is above the address.
func (r *Run) where(addr uint64) (*symbol.Space, uint64) {
	if r.pool == nil {
		if all := r.all(); len(all) > 0 {
			return all[0].session.Symbols(), addr
		}
		return nil, addr
	}
	return r.symbols(addr >> plan.ProcessShift), addr & (1<<plan.ProcessShift - 1)
}

// stack shows a trace: a frame a line. Of several processes, the number of the one is above the trace's.
func (r *Run) stack(id uint64, t *types.Type, named func(uint64, bool) string) string {
	m := r.mapOf(plan.StackName)
	process := id >> 32 << plan.ProcessShift
	value, err := m.Lookup(binary.LittleEndian.AppendUint32(nil, uint32(id)))
	if err != nil {
		return ""
	}
	var b strings.Builder
	b.WriteByte('\n')
	for i := 0; i < len(value) && (t.Len == 0 || i < 8*t.Len); i += 8 {
		ip := binary.LittleEndian.Uint64(value[i:])
		if ip == 0 {
			break
		}
		switch t.Name {
		case "raw":
			fmt.Fprintf(&b, "%x\n", ip)
		case "perf":
			module := ""
			if space, at := r.where(process | ip); space != nil {
				if loc, _ := space.At(arch.Addr(at)); loc.Module != nil {
					module = loc.Module.Name
				}
			}
			fmt.Fprintf(&b, "\t%16x %s (%s)\n", ip, named(process|ip, true), module)
		default:
			fmt.Fprintf(&b, "        %s\n", named(process|ip, true))
		}
	}
	return b.String()
}

// userName is a user's name, or the number where there is none.
func userName(id uint32) string {
	text := strconv.FormatUint(uint64(id), 10)
	u, err := user.LookupId(text)
	if err != nil {
		return text
	}
	return u.Username
}
