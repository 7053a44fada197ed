package segment

import "kprobe/internal/jit"

// Names are the segment's offsets and numbers by the names that routines in assembler have for them.
func Names() map[string]int64 {
	return map[string]int64{
		"HEAD_DEAD": HeadDead, "HEAD_TGID": headTgid, "HEAD_NEXT": headNext, "HEAD_MAX": headMax, "HEAD_STATES": headStates, "HEAD_STRIDE": headStride, "HEAD_SPAN": headSpan, "HEAD_HELD": headHeld, "GROUP_SHIFT": groupShift, "GROUP_MASK": groupStates - 1,
		"HEAD_SINK": headSink, "HEAD_OTHER": headOther, "HEAD_TRACE": headTrace, "HEAD_READ_TEXT": HeadReadText, "HEAD_UID_GID": headUIDGID,
		"HEAD_CURRENT": headCurrent, "HEAD_CRED": headCurrent + 4, "HEAD_UID": headUID, "HEAD_GID": headUID + 4,
		"HEAD_CLOCK_BASE": headClock, "HEAD_CLOCK_MULT": headClock + 8, "HEAD_CLOCK_SHIFT": headClock + 16, "HEAD_CLOCK_BOOT": headClock + 24,
		"HEAD_READS_BASE": headReadsBase, "HEAD_PROOF": headProof, "HEAD_SHARED": headShared, "HEAD_ANY_SHARED": headAnyShared,
		"HASH_FACTOR": HashFactor - 1<<32, "KEY_FACTOR": KeyFactor, "HASH_SHIFT32": HashShift32, "HASH_SHIFT64": HashShift64, "HASH_MASK": HashMask,
		"ODD_KEY": oddKey, "ODD_BIT": oddBit, "KEY_ALIGN": keyAlign - 1,
		"HEAD_FILES": headFiles, "FILE_ALIGN": fileAlign - 1,
		"TABLE_WINDOW": TableWindow, "ENTRY_SIZE": EntrySize, "TOMBSTONE": tombstone,

		"STATE_PID_TGID": jit.StatePidTgid, "STATE_SLOT": jit.StateSlot,
		"STATE_BUSY": StateBusy, "STATE_CLOSED": StateClosed, "STATE_BACK": stateBack,
		"STATE_KEY": StateKey, "STATE_CALLS": StateCalls, "STATE_STACK_LOW": StateStackLow,
		"STATE_STACK_HIGH": stateStackHigh, "STATE_OVERRIDE": StateOverride,
		"STATE_VALUE": StateValue, "STATE_COMM": StateComm, "COMM_SIZE": CommSize, "STATE_RANDOM": stateRandom, "STATE_TRACE": StateTrace,
		"STATE_COUNTERS": StateCounters, "STATE_CALL": StateCall, "STATE_RSP": StateRSP, "STATE_FREE": stateFree,
		"STATE_FREES": stateFrees, "STATE_ASKED": StateAsked, "STATE_OWNER": stateOwner, "STATE_OWN": stateOwn,

		"CALL_SIZE": CallSize, "CALL_SHIFT": callShift, "CALL_MARK": CallMark, "CALL_OWNER": callOwner, "MARK_LEFT": markLeft,
		"AWAY_KEYS": awayKeys, "AWAY_CALLS": awayCalls, "AWAY_MASK": awayMask, "AWAY_ANY": awayAny, "AWAY_SHIFT": awayShift,
		"AWAY_BUCKET": 8 * awayBucket, "AWAY_CLAIMED": awayClaimed, "CALLS_AWAY": 8 * Away,
		"CALL_SLOT": CallSlot, "CALL_RET": CallRet, "CALL_PROBE": CallProbe,
		"CALL_DATA": CallData, "CALL_BACK": CallBack, "CALLS_AT": StateCallsAt, "MAX_CALLS": MaxCalls,
		"LOST_UNWOUND": 8 * LostUnwound, "LOST_GOEXIT": 8 * LostGoexit,

		"POOL_NEXT": poolNext, "POOL_MAX": poolMax, "POOL_CALLS": PoolCalls, "POOL_GIVEN": PoolGiven, "POOL_DATA": PoolData,
		"POOL_GOROUTINES": poolGoroutines, "POOL_GOID": poolGoid, "POOL_BATCH": PoolBatch,
		"OWNER_KEY": ownerKey, "OWNER_TOP": ownerTop, "OWNER_ID": ownerID, "OWNER_AGAIN": ownerAgain,
		"OWNER_COUNT": ownerCount, "OWNER_SIZE": ownerSize,
		"OWNERS_HASH": ownersHash, "OWNERS_SHIFT": ownersShift, "OWNERS_MASK": ownersMask, "OWNERS_WINDOW": ownersWindow,
		"NODE_NEXT": nodeNext, "NODE_PLACE": nodePlace, "NODE_RET": NodeRet, "NODE_PROBE": nodeProbe, "NODE_BATCH": nodeBatch,
		"NODE_SHIFT": nodeShift, "DATA_SHIFT": DataShift,
		"SLOTS_ACTIVE": slotsActive, "SLOTS_FAR": slotsFar, "SLOTS_MASK": slotsMask, "SLOTS_CARRIER": slotsCarrier,
		"SLOT_DATA_SHIFT": SlotDataShift, "LOST_EXITED": 8 * LostExited,
		"GO_STACK_LO": goStackLo, "GO_STACK_HI": goStackHi,
	}
}
