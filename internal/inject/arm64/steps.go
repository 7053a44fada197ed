package arm64

import (
	"kprobe/internal/inject"
)

// pairs are Machine.Pairs.
var pairs = []inject.Pair{
	{At: "take_entry", Addr: 5, Was: 6, Expects: 7, Set: 0, Status: 8, Done: "entry_taken", Lost: "entry_lost"},
	{At: "next_state", Addr: 7, Was: 2, Set: 4, Status: 8, Done: "state_given"},
	{At: "give_batch", Addr: 13, Was: 11, Expects: 14, Set: 15, Status: 8, Done: "batch_given", Lost: "batch_kept"},
	{At: "take_batch", Addr: 13, Was: 11, Expects: 14, Set: 15, Status: 8, Done: "batch_taken", Lost: "batch_lost"},
	{At: "lose_one", Addr: 2, Was: 0, Set: 10, Status: 8, Done: "one_lost", Wide: true},
	{At: "next_call", Addr: 13, Was: 10, Set: 12, Status: 8, Done: "call_given"},
}
