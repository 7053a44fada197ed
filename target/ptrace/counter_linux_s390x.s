#include "textflag.h"

// func timeStamp() uint64
TEXT ·timeStamp(SB), NOSPLIT, $0-8
	STCK ret+0(FP)
	RET
