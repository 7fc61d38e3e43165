// Package ports names the inputs and outputs of Programs that a runtime binds: the graphs
// declare them and the runtime feeds them by these constants. Ports that are bound in a
// loop (parameters, gradients, stashed activations, the cache) have no constants: their
// models.Port says what they are.
//
// The letters of shapes are those of package models; P is the number of positions in the
// rotary tables, R the number of rows that predict a response token, and v the number of
// rows in a slice of the vocabulary. An output "onto" an input may be bound onto its
// memory. Ports are float32 unless a comment says otherwise.
package ports

// The ports of the layers and of the final norm, forward and backward.
const (
	Stream        = "x"  // [N,D], the input of a layer; for the norm [R,D]
	StreamOut     = "y"  // [N,D], the output of a layer
	StreamGrad    = "dy" // [N,D], dL/dy
	StreamGradOut = "dx" // [N,D], dL/dx; for the norm [R,D]

	Positions    = "pos"    // int64 [N,1], the position of each token in its sequence
	Cos          = "cos"    // [P,n/2], cosines of the angles by which positions turn the first n elements of heads
	Sin          = "sin"    // [P,n/2]
	Mask         = "mask"   // [T,T], 0 on and below the diagonal and very negative above
	Band         = "band"   // Mask for layers with a window of W: very negative also at the places before the newest W
	PackedRows   = "rows"   // int64 [B,T], the packed token at each place; any index at places without a token
	PackedTokens = "tokens" // int64 [N], the place b*T+t of each packed token; the first of several places
	Valid        = "valid"  // [B,T,1], 1 at the places of PackedTokens and 0 at others
	TokenCopies  = "copies" // int64 [M,J], all places of each of the first M packed tokens; M is at least 1
	TokenCopied  = "copied" // [M,1,J], 1 for each of these places and 0 where a token has fewer
	BlockBounds  = "bounds" // int64 [blocks+1], where blocks of queries begin, and T

	InverseTemperature = "inv_temperature" // []
	Normed             = "h"               // [R,D], the normed stream over the temperature
	NormedGrad         = "dh"              // [R,D], dL/dh
)

// The ports of the head, which processes the vocabulary in slices.
const (
	HeadSlice        = "E"       // [v,D] rows of the head; of head.target the whole head
	HeadSliceGrad    = "dE"      // [v,D], the running gradient of these rows
	HeadSliceGradOut = "dE_out"  // onto HeadSliceGrad
	NormedGradOut    = "dh_out"  // [R,D], onto NormedGrad
	LogSumExp        = "z"       // [R,1], of the logits of all earlier slices
	LogSumExpOut     = "z_out"   // LogSumExp with this slice included
	MeanLogit        = "u"       // [R,1], the mean of the logits of all earlier slices
	MeanLogitOut     = "u_out"   // MeanLogit with this slice included
	Logits           = "logits"  // [R,v], the logits of the slice, if they are stored
	KeptAll          = "every"   // [R,1], 1 where a row is a distribution over the whole vocabulary, 0 where over some tokens
	KeptPlaces       = "set"     // int64 [K,2], (r, token - the slice's first row) of such tokens; any place has the KeptOnes of 0
	KeptOnes         = "ones"    // [K], 1 for each of them
	LogSquares       = "q"       // [R,1], the log-sum-exp of twice the logits of all earlier slices
	LogSquaresOut    = "q_out"   // LogSquares with this slice included
	Targets          = "y"       // int64 [R], the response tokens
	TargetLogit      = "logit"   // [R], the logits of Targets
	TargetPlaces     = "at"      // int64 [R,2], (r, y[r] - the slice's first row), or (r, 0) where y[r] is in another slice
	TargetGrad       = "dlogit"  // [R], w[r], or 0 where y[r] is in another slice
	LogProbGrad      = "w"       // [R,1], dL/dlogp
	EntropyGrad      = "v"       // [R,1], dL/dentropy
	Entropy          = "entropy" // [R,1] in nats; for Sample [B]
)

// The ports of the Programs that look up and add rows on a device.
const (
	Table     = "X"     // [M,D]
	TableOut  = "X_out" // onto Table
	RowIDs    = "ids"   // int64 [n], indexes of rows
	Rows      = "rows"  // [n,D], added onto the rows of these ids
	RowsOut   = "y"     // [n,D], the rows of these ids
	PairLeft  = "left"  // int64 [m], the row on the left of each sum
	PairRight = "right" // int64 [m], the row on the right of each sum
	Paired    = "pair"  // [m,1], 1 if there is a row on the right, else 0
)

// The ports of Prefill and Decode, besides Positions, Cos, Sin, Mask and Band.
const (
	TokenIDs     = "ids"     // int64 [B,T], for Decode [B,1]
	LastTokens   = "last"    // int64 [B], where in [B*T] each prompt has its last token
	CacheLengths = "seqlens" // int32 [B], the number of tokens of each row before the last new one
	CacheTotal   = "total"   // int32 [], the largest number of tokens of a row, new ones included
	CachePlaces  = "at"      // int64 [B,G,3], where in the cache the new keys and values go
	PromptWindow = "window"  // int64 [B,L-1], the places of the last tokens of each prompt in a row behind L-1 zeros
	Active       = "active"  // [B,1], 1 for a row that gets a token, 0 for one whose state must not change
	CacheIndices = "places"  // int64 [S], the numbers from 0 to S-1
	Hidden       = "hidden"  // [B,D], the normed state of the last tokens
)

// The ports of Sample, besides Hidden, InverseTemperature and Entropy.
const (
	Uniforms   = "uniforms"   // [B], from [0,1)
	TopK       = "k"          // int64 [1], how many of the likeliest tokens to return
	NextTokens = "next"       // int64 [B], the chosen tokens
	Candidates = "candidates" // int64 [B,k], the likeliest tokens, in descending order
	LogProb    = "logp"       // [B], for candidates [B,k]
)

// The ports of the optimizer's Programs, over n elements of the arena; see package adamw.
const (
	Param       = "p"       // [n]
	ParamOut    = "p1"      // onto Param
	Grad        = "g"       // [n]
	First       = "m"       // [n], the running mean of g
	Second      = "v"       // [n], the running mean of g^2
	Copy        = "copy"    // [n], ParamOut rounded to 16 bits
	SquareSum   = "sum"     // [], the sum of the squares of Grad
	Unscale     = "unscale" // [], 1 / the scale of the loss
	NotFinite   = "found"   // [1], how many elements of Grad are infinite or NaN
	Clip        = "clip"    // [], the factor of Grad
	Beta1       = "beta1"   // []
	Beta2       = "beta2"   // []
	Beta1Rest   = "rest1"   // [], 1-beta1
	Beta2Rest   = "rest2"   // [], 1-beta2
	Rate        = "rate"    // [], lr/(1-beta1^t)
	SecondScale = "root"    // [], 1/sqrt(1-beta2^t)
	Eps         = "eps"     // []
	Keep        = "keep"    // [], 1-lr*weight_decay
)
