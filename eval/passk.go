package eval

// passAtK estimates the probability that at least one of k samples is right
// from n samples of which c are: 1 - C(n-c, k) / C(n, k), which is unbiased
// (Chen et al., "Evaluating Large Language Models Trained on Code", 2021,
// equation 1). It needs 0 <= c <= n and 1 <= k <= n. With k = 1 it is c/n.
//
// The quotient of binomials is the product over i = n-c+1 .. n of (1 - k/i),
// which neither overflows nor loses digits.
func passAtK(n, c, k int) float64 {
	if n-c < k {
		return 1 // any k samples hold a right one
	}
	if k == 1 {
		return float64(c) / float64(n)
	}
	none := 1.0
	for i := n - c + 1; i <= n; i++ {
		none *= 1 - float64(k)/float64(i)
	}
	return 1 - none
}

// powers returns the k at which pass@k and maj@k are reported: the powers of
// two up to n, and n.
func powers(n int) []int {
	var ks []int
	for k := 1; k < n; k *= 2 {
		ks = append(ks, k)
	}
	return append(ks, n)
}
