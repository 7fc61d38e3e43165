package verifier

import "math/big"

// A dimension is the exponents of length, mass, time, amount, current,
// temperature, and one for each currency that has no fixed rate.
type dimension [14]int8

const (
	length = iota
	mass
	duration
	amount
	current
	temperature
	dollars
	euros
	pounds
	yuan
	rupee
	yen
	ruble
	month
)

// A unit is its size in base units and its dimension.
type unit struct {
	num, den int64
	dim      dimension
}

func is(base int) dimension {
	var d dimension
	d[base] = 1
	return d
}

func of(powers ...int8) dimension {
	var d dimension
	copy(d[:], powers)
	return d
}

var (
	volume   = of(3)
	speed    = of(1, 0, -1)
	force    = of(1, 1, -2)
	energy   = of(2, 1, -2)
	power    = of(2, 1, -3)
	pressure = of(-1, 1, -2)
)

// units by the names that package latex gives them, in metres, kilograms and
// seconds. A month has no fixed number of days; years and months convert.
var units = map[string]unit{
	"nm": {1, 1_000_000_000, is(length)}, "mm": {1, 1000, is(length)}, "cm": {1, 100, is(length)}, "dm": {1, 10, is(length)}, "m": {1, 1, is(length)}, "km": {1000, 1, is(length)},
	"in": {254, 10_000, is(length)}, "ft": {3048, 10_000, is(length)}, "yd": {9144, 10_000, is(length)}, "mi": {1_609_344, 1000, is(length)},
	"mg": {1, 1_000_000, is(mass)}, "g": {1, 1000, is(mass)}, "kg": {1, 1, is(mass)}, "t": {1000, 1, is(mass)}, "lb": {45_359_237, 100_000_000, is(mass)}, "oz": {45_359_237, 1_600_000_000, is(mass)}, "ton": {45_359_237 * 20, 1_000_000, is(mass)},
	"ms": {1, 1000, is(duration)}, "s": {1, 1, is(duration)}, "min": {60, 1, is(duration)}, "h": {3600, 1, is(duration)}, "day": {86_400, 1, is(duration)}, "week": {604_800, 1, is(duration)},
	"month": {1, 1, is(month)}, "yr": {12, 1, is(month)},
	"L": {1, 1000, volume}, "mL": {1, 1_000_000, volume}, "gal": {3_785_411_784, 1_000_000_000_000, volume}, "qt": {3_785_411_784, 4_000_000_000_000, volume},
	"pt": {3_785_411_784, 8_000_000_000_000, volume}, "cup": {3_785_411_784, 16_000_000_000_000, volume},
	"ha": {10_000, 1, of(2)}, "acre": {40_468_564_224, 10_000_000, of(2)},
	"mph": {1_609_344, 3_600_000, speed}, "kph": {1000, 3600, speed},
	"N": {1, 1, force}, "J": {1, 1, energy}, "kJ": {1000, 1, energy}, "cal": {4184, 1000, energy}, "kcal": {4184, 1, energy}, "eV": {1_602_176_634, 0, energy},
	"W": {1, 1, power}, "kW": {1000, 1, power}, "Pa": {1, 1, pressure}, "kPa": {1000, 1, pressure}, "Hz": {1, 1, of(0, 0, -1)}, "kHz": {1000, 1, of(0, 0, -1)},
	"rad": {1, 1, dimension{}},
	"mol": {1, 1, is(amount)}, "A": {1, 1, is(current)}, "C": {1, 1, of(0, 0, 1, 0, 1)}, "V": {1, 1, of(2, 1, -3, 0, -1)}, "ohm": {1, 1, of(2, 1, -3, 0, -2)}, "K": {1, 1, is(temperature)},
	"USD": {1, 1, is(dollars)}, "cent": {1, 100, is(dollars)}, "EUR": {1, 1, is(euros)}, "GBP": {1, 1, is(pounds)}, "yuan": {1, 1, is(yuan)}, "rupee": {1, 1, is(rupee)}, "yen": {1, 1, is(yen)}, "ruble": {1, 1, is(ruble)},
}

// measure is the size and the dimension of a product of units; ok is false if
// one is not known.
func measure(powers []unitPower) (*big.Rat, dimension, bool) {
	size := big.NewRat(1, 1)
	var dim dimension
	for _, p := range powers {
		u, ok := units[p.name]
		if !ok || p.power < -20 || p.power > 20 {
			return nil, dim, false
		}
		den := new(big.Rat).SetInt64(u.den)
		if u.den == 0 { // the electronvolt: 1.602176634e-19 J
			den.SetString("1e28")
		}
		one := new(big.Rat).Quo(new(big.Rat).SetInt64(u.num), den)
		k := p.power
		if k < 0 {
			one.Inv(one)
			k = -k
		}
		for range k {
			size.Mul(size, one)
		}
		for i := range dim {
			dim[i] += u.dim[i] * int8(p.power)
		}
	}
	return size, dim, true
}
