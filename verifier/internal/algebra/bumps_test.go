package algebra

import "testing"

// bumps are functions that vanish at many points, or nearly, and are not zero.
var bumps = []string{
	`\sin(2^{16}\pi x)`, `\sin^2(2^{20}\pi x)`, `\sin(10^{30}\pi x)`, `\sin(10^{400}\pi x)`, `\sin(10^{1000}\pi x)`, `\sin(30!\cdot\pi x)`, `\tan(65536\pi x)`, `1-\cos(2^{17}\pi x)`,
	`\sin(2^{16}\pi x)\cos x`, `e^{2^{17}\pi i x}-1`, `\sqrt{\sin^2(2^{18}\pi x)}`, `2^{17}x-\lfloor 2^{17}x\rfloor`, `\lceil x\rceil-\lfloor x\rfloor-1`, `\lfloor\frac{1}{1+|x-\pi|}\rfloor`,
	`\lfloor e^{-(x-3)^2}\rfloor`, `\lfloor\cos^2(\pi x)\rfloor`, `\lfloor\frac{x}{10^9}\rfloor`, `\lfloor\sin^2 x\rfloor`, `\lceil\cos(x)/2\rceil-\lceil\cos(x)/2\rceil^2`, `\binom{x}{10^6}`, `\binom{x}{10^5}`, `\binom{x}{200}`,
	`\lfloor\frac{\lfloor x\rfloor}{1000}\rfloor`, `|x-e^{50}|+x-e^{50}`, `|x-3^{60}|+x-3^{60}`, `|x-\sqrt{10^{20}}|+x-\sqrt{10^{20}}`, `\max(0,x-e^{30})`, `\min(0,x+\pi^{40})`, `\sqrt{(x-e^{40})^2}+x-e^{40}`,
	`\max(0,|x|-10^{20})`, `e^{-10^6(x-3)^2}`, `e^{-x^2-10^4}`, `10^{-80}`, `10^{-80}\sin x`, `\sin(10^{-50}x)`, `((-1)^x-1)\sin(\pi x)`, `\frac{1}{10^{10^{10}}}`, `\lfloor\frac{2}{3+x^2}\rfloor`,
	`\gcd(\lfloor x\rfloor,10^9+7)-1`, `\operatorname{sgn}(x-10^9)+1`, `\prod_{k=0}^{200}(x-k)`, `\lfloor|\cos(\pi x)|\rfloor`, `\lfloor\frac{1}{1+|x-e|}\rfloor\cdot5`,
	`|x^2-10^{-30}|-x^2+10^{-30}`, `\max(0,10^{-6}-|x-\sqrt2|)`, `\max(0,\frac{1}{10}-|x-\frac{5}{2}|)`, `|10^{-9}-(x-\pi)^2|+10^{-9}-(x-\pi)^2`, `\operatorname{sgn}(x^2-10^{-30})-1`, `\sqrt{(x^2-10^{-30})^2}-x^2+10^{-30}`,
	`0^{|x-\pi|}`, `0^{(x-3)^2}`,
	`\lfloor x\rfloor-\lfloor\frac{\lfloor 2^{40}x\rfloor}{2^{40}}\rfloor`,
}

// naturalBumps are functions that vanish at the natural numbers that one would try.
var naturalBumps = []string{
	`\lfloor\frac{n}{100}\rfloor`, `\lfloor\frac{n}{10^{15}}\rfloor`, `\binom{n}{10^6}`, `\binom{n}{150}`, `\max(0,n-10^{13})`, `\prod_{k=0}^{200}(n-k)`, `\sum_{k=10^9}^{n}1`, `\sum_{k=500}^{n}k`, `\lfloor\frac{n!}{10^{400}}\rfloor`,
	`\lfloor\log_{10^9}n\rfloor`, `\gcd(n,1000003)-1`, `\lfloor\frac{n}{25}\rfloor-\lfloor\frac{n}{25}\rfloor^2`,
}

// TestBumps: a function plus a bump, which no tried point may meet, differs from the function.
func TestBumps(t *testing.T) {
	refuse := func(gold, answer string) {
		t.Helper()
		for _, pair := range [][2]string{{gold, answer}, {answer, gold}} {
			if got, rule := NewChecker().Equal(parse(t, pair[0]), parse(t, pair[1])); got == Equal {
				t.Errorf("Equal(%s, %s): %s", pair[0], pair[1], rule)
			}
		}
	}
	for _, bump := range bumps {
		for _, gold := range []string{`x^2+1`, `\sin x`, `\frac{x}{1+x^2}`, `|x|`, `e^{x}`} {
			refuse(gold, gold+`+`+bump)
		}
	}
	for _, bump := range naturalBumps {
		for _, gold := range []string{`n!`, `2^n`, `\frac{n(n+1)}{2}`, `\binom{2n}{n}`, `(-1)^n`} {
			refuse(gold, gold+`+`+bump)
		}
	}
}

// TestTinyArguments: a function of a tiny number equals this number only to first order.
func TestTinyArguments(t *testing.T) {
	for _, f := range []string{`\sin`, `\tan`, `\arcsin`, `\arctan`, `\sinh`, `\tanh`, `\operatorname{arcsinh}`, `\operatorname{arctanh}`} {
		for _, tiny := range []string{`10^{-50}`, `10^{-150}`, `10^{-300}`, `2^{-1000}`, `\pi\cdot10^{-90}`} {
			for _, pair := range [][2]string{{tiny, f + "(" + tiny + ")"}, {"1", `\frac{` + f + "(" + tiny + ")}{" + tiny + "}"}} {
				if got, rule := NewChecker().Equal(parse(t, pair[0]), parse(t, pair[1])); got == Equal {
					t.Errorf("Equal(%s, %s): %s", pair[0], pair[1], rule)
				}
			}
		}
	}
}
