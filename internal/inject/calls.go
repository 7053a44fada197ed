package inject

import "kprobe/internal/segment"

// Return is a return probe in the target. The call is remembered on the thread's
// stack of instances; the function returns into the detour, and from there to its caller.
type Return struct {
	ID       uint32    // told in Call.Probe, and the first of its Counters: of Lost calls, and Away
	Max      int32     // the most of them in one thread (MaxActive)
	Missed   int       // counter of calls that are not watched, because there are Max already or for Detour.Missed's reasons
	Entry    []Program // run at the entry, after Detour.Programs, where the call is watched
	Veto     bool      // a result of the last of Entry other than 0 says that this return is of no interest
	Hits     int       // counter of returns, or NoCounter
	Programs []Program // run at the return
	Data     int       // bytes of private data that programs at the entry and the return share
}

// Enter is the beginning of a call whose end is an Exit: return addresses stay as they
// are. The call is remembered in the pool, as the goroutine's or the thread's.
type Enter struct {
	ID       uint32    // the first of its counters of Lost calls
	Max      int32     // the most of them that one goroutine or thread can have under way
	Missed   int       // as in Return
	Programs []Program // run where the call is watched, after Detour.Programs; not with Override
	Veto     bool      // as in Return
	Data     int       // as in Return
}

// Exit is the other end of an Enter: the displaced instruction returns, or jumps to a function in
// tail position, or to this function's own entry. The call is recognised by the place of its return
// address on the stack; an instruction that is not at the height of a call's entry is no exit of it.
type Exit struct {
	ID       uint32    // Enter.ID
	Again    bool      // it jumps to the function's entry: that is no new call
	Hits     int       // counter of returns, or NoCounter
	Programs []Program // run with the registers that the caller will see, but for a tail jump's result
}

// What enter_call, leave_call and take_data are asked: words of 4 bytes at StateAsked.
const (
	AskedProbe = iota
	AskedMax
	AskedData
	AskedAgain
)

// Words counts the words of 8 bytes that private data takes.
func Words(n int) int32 { return int32(segment.RoundUp(min(n, segment.MaxData), 8) / 8) }
