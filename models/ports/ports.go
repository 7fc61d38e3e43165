// Package ports names the inputs and outputs of Programs that a runtime binds:
// the graphs declare them and the runtime feeds them by these constants. What a
// Program wants in such numbers that it is bound in a loop (parameters, gradients,
// stashed activations, the cache) has no constant: its models.Port says what it is.
//
// The letters of shapes are those of package models; P is the number of positions
// in the rotary tables, R that of rows that predict a response token, and v that
// of rows in a slice of the vocabulary. What is said to be written onto an input
// may be bound onto its memory. All are float32 unless a comment says otherwise.
package ports

import "fmt"

// BlockEdge names, in place of BlockBounds, the first place of a block of queries from
// block 1 on: int64 [1].
func BlockEdge(block int) string { return fmt.Sprintf("%s.%d", BlockBounds, block) }

// The ports of the layers and of the final norm, forward and backward.
const (
	Stream        = "x"  // [N,D], what goes into a layer; of the norm [R,D]
	StreamOut     = "y"  // [N,D], what comes out of it
	StreamGrad    = "dy" // [N,D], dL/dy
	StreamGradOut = "dx" // [N,D], dL/dx; of the norm [R,D]

	Positions    = "pos"    // int64 [N,1], of each token in its sequence
	Cos          = "cos"    // [P,K/2], of the angles by which positions turn heads
	Sin          = "sin"    // [P,K/2]
	Mask         = "mask"   // [T,T], 0 on and below the diagonal and very negative above
	PackedRows   = "rows"   // int64 [B,T], the packed token at each place; any where there is none
	PackedTokens = "tokens" // int64 [N], the place b*T+t of each packed token, of several the first
	Valid        = "valid"  // [B,T,1], 1 at the places of PackedTokens and 0 at others
	TokenCopies  = "copies" // int64 [M,J], all places of each of the first M packed tokens; M is at least 1
	TokenCopied  = "copied" // [M,1,J], 1 for each of these and 0 where a token has fewer
	BlockBounds  = "bounds" // int64 [blocks+1], where blocks of queries begin, and T

	InverseTemperature = "inv_temperature" // []
	Normed             = "h"               // [R,D], the normed stream over the temperature
	NormedGrad         = "dh"              // [R,D], dL/dh
)

// The ports of the head, which takes the vocabulary slice by slice.
const (
	HeadSlice        = "E"       // [v,D] rows of the head; of head.target the whole head
	HeadSliceGrad    = "dE"      // [v,D], the running gradient of these rows
	HeadSliceGradOut = "dE_out"  // onto it
	NormedGradOut    = "dh_out"  // [R,D], onto NormedGrad
	LogSumExp        = "z"       // [R,1], of the logits of the slices so far
	LogSumExpOut     = "z_out"   // with those of this slice
	MeanLogit        = "u"       // [R,1], the mean of the logits of the slices so far
	MeanLogitOut     = "u_out"   // with those of this slice
	Logits           = "logits"  // [R,v] of the slice, where they are kept
	Targets          = "y"       // int64 [R], the response tokens
	TargetLogit      = "logit"   // [R], their logits
	TargetPlaces     = "at"      // int64 [R,2], (r, y[r] - the slice's first row), or (r, 0) where y[r] is in another slice
	TargetGrad       = "dlogit"  // [R], w[r], or 0 where y[r] is in another slice
	LogProbGrad      = "w"       // [R,1], dL/dlogp
	EntropyGrad      = "v"       // [R,1], dL/dentropy
	Entropy          = "entropy" // [R,1] in nats; of Sample [B]
)

// The ports of the Programs that look rows up and add rows up on a device.
const (
	Table     = "X"     // [M,D]
	TableOut  = "X_out" // onto it
	RowIDs    = "ids"   // int64 [n]
	Rows      = "rows"  // [n,D], what is added onto the rows at the ids
	RowsOut   = "y"     // [n,D], the rows at the ids
	PairLeft  = "left"  // int64 [m], the row on the left of each sum
	PairRight = "right" // int64 [m], that on the right
	Paired    = "pair"  // [m,1], 1 where there is one on the right, else 0
)

// The ports of Prefill and Decode, besides Positions, Cos, Sin and Mask. Decode's
// mask, where it has one, is [B,1,1,S].
const (
	TokenIDs     = "ids"     // int64 [B,T], in Decode [B,1]
	LastTokens   = "last"    // int64 [B], where in [B*T] each prompt has its last token
	CacheLengths = "seqlens" // int32 [B], the tokens of each row before the last new one
	CacheTotal   = "total"   // int32 [], the most tokens of a row with the new ones
	CachePlaces  = "at"      // int64 [B,G,3], where in the cache the new keys and values go
	CacheIndices = "places"  // int64 [S], the numbers from 0 to S-1
	Hidden       = "hidden"  // [B,D], the normed state of the last tokens
)

// The ports of Sample, besides Hidden, InverseTemperature and Entropy.
const (
	Uniforms   = "uniforms"   // [B], from [0,1)
	TopK       = "k"          // int64 [1], how many of the likeliest to return
	NextTokens = "next"       // int64 [B]
	Candidates = "candidates" // int64 [B,k], the likeliest, in descending order
	LogProb    = "logp"       // [B], of the candidates [B,k]
)

// The ports of the optimizer's Programs, over n elements of the arena; see package adamw.
const (
	Param       = "p"       // [n]
	ParamOut    = "p1"      // onto it
	Grad        = "g"       // [n]
	First       = "m"       // [n], the running mean of g
	FirstOut    = "m1"      // onto it
	Second      = "v"       // [n], the running mean of g^2
	SecondOut   = "v1"      // onto it
	Copy        = "copy"    // [n], ParamOut rounded to 16 bits
	SquareSum   = "sum"     // [], of the squares of Grad
	Unscale     = "unscale" // [], one over the scale of the loss
	NotFinite   = "found"   // [1], how many elements of Grad are infinite or NaN
	Clip        = "clip"    // [], what multiplies Grad
	Beta1       = "beta1"   // []
	Beta2       = "beta2"   // []
	Beta1Rest   = "rest1"   // [], 1-beta1
	Beta2Rest   = "rest2"   // [], 1-beta2
	Rate        = "rate"    // [], lr/(1-beta1^t)
	SecondScale = "root"    // [], 1/sqrt(1-beta2^t)
	Eps         = "eps"     // []
	Keep        = "keep"    // [], 1-lr*weight_decay
)
