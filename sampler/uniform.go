package sampler

// Uniform returns the number in [0, 1) that decides token number token of sample number sample of the prompt
// with id prompt, in a run with that seed. It depends on nothing else, so a response is the same whatever was
// decoded beside it, and any token's draw can be computed again later.
//
// The values are k/2^24: a float32 holds each of them exactly, and none rounds up to 1. They are the high 24
// bits of the first word of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11),
// the key being the seed and the counter (prompt, sample, token). The four numbers fill key and counter
// exactly, so distinct draws never share a block; sample and token must be in [0, 2^32).
func Uniform(seed, prompt uint64, sample, token int) float32 {
	block := philox(
		[4]uint32{uint32(prompt), uint32(prompt >> 32), uint32(sample), uint32(token)},
		[2]uint32{uint32(seed), uint32(seed >> 32)},
	)
	return float32(block[0]>>8) * (1.0 / (1 << 24))
}

// philox is Philox4x32 with the ten rounds its authors recommend.
func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	const (
		m0, m1 = 0xD2511F53, 0xCD9E8D57 // the multipliers
		w0, w1 = 0x9E3779B9, 0xBB67AE85 // the key schedule: golden ratio, sqrt(3)-1
	)
	// Scalars, because the compiler keeps arrays in memory.
	c0, c1, c2, c3, k0, k1 := ctr[0], ctr[1], ctr[2], ctr[3], key[0], key[1]
	for range 10 {
		p0, p1 := m0*uint64(c0), m1*uint64(c2)
		c0, c1, c2, c3 = uint32(p1>>32)^c1^k0, uint32(p1), uint32(p0>>32)^c3^k1, uint32(p0)
		k0 += w0
		k1 += w1
	}
	return [4]uint32{c0, c1, c2, c3}
}
