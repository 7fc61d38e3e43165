package verifier

import (
	"math/big"
	"strconv"

	"onering/verifier/internal/latex"
)

// A dimension holds the exponents of length, mass, time, amount, current, temperature,
// each currency without a fixed rate, angle and information.
type dimension [16]int8

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
	angle
	information
)

// A unit is its size in base units and its dimension.
type unit struct {
	num, den int64
	dim      dimension
}

func base(quantity int) dimension {
	var d dimension
	d[quantity] = 1
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

// units by the names that package latex gives them without prefixes, in metres, kilograms
// and seconds. A month has no fixed number of days; years and months convert.
var units = map[string]unit{
	"m": {1, 1, base(length)}, "in": {254, 10_000, base(length)}, "ft": {3048, 10_000, base(length)}, "yd": {9144, 10_000, base(length)},
	"mi": {1_609_344, 1000, base(length)}, "nmi": {1852, 1, base(length)},
	"angstrom": {1, 10_000_000_000, base(length)}, "au": {149_597_870_700, 1, base(length)}, "ly": {9_460_730_472_580_800, 1, base(length)},
	"pc": {30_856_775_814_913_673, 1, base(length)},
	"g":  {1, 1000, base(mass)}, "t": {1000, 1, base(mass)}, "lb": {45_359_237, 100_000_000, base(mass)},
	"oz": {45_359_237, 1_600_000_000, base(mass)}, "ton": {45_359_237 * 20, 1_000_000, base(mass)},
	"s": {1, 1, base(duration)}, "min": {60, 1, base(duration)}, "h": {3600, 1, base(duration)}, "day": {86_400, 1, base(duration)},
	"week":  {604_800, 1, base(duration)},
	"month": {1, 1, base(month)}, "yr": {12, 1, base(month)},
	"L": {1, 1000, volume}, "gal": {3_785_411_784, 1_000_000_000_000, volume}, "qt": {3_785_411_784, 4_000_000_000_000, volume},
	"pt": {3_785_411_784, 8_000_000_000_000, volume}, "cup": {3_785_411_784, 16_000_000_000_000, volume},
	"floz": {3_785_411_784, 128_000_000_000_000, volume}, "tbsp": {3_785_411_784, 256_000_000_000_000, volume},
	"tsp": {3_785_411_784, 768_000_000_000_000, volume},
	"ha":  {10_000, 1, of(2)}, "acre": {40_468_564_224, 10_000_000, of(2)},
	"mph": {1_609_344, 3_600_000, speed}, "kph": {1000, 3600, speed},
	"N": {1, 1, force}, "J": {1, 1, energy}, "cal": {4184, 1000, energy}, "eV": {1_602_176_634, 0, energy}, "Wh": {3600, 1, energy},
	"W": {1, 1, power}, "Pa": {1, 1, pressure}, "bar": {100_000, 1, pressure}, "atm": {101_325, 1, pressure},
	"mmHg": {101_325, 760, pressure}, "M?": {1000, 1, of(-3, 0, 0, 1)}, "Hz": {1, 1, of(0, 0, -1)},
	"rad": {1, 1, dimension{}}, "sr": {1, 1, dimension{}}, "arcmin": {1, 60, base(angle)}, "'": {1, 60, base(angle)},
	"arcsec": {1, 3600, base(angle)}, "mas": {1, 3_600_000, base(angle)}, "b": {1, 8, base(information)},
	"B": {1, 1, base(information)}, "byte": {1, 1, base(information)},
	"mol": {1, 1, base(amount)}, "A": {1, 1, base(current)}, "C": {1, 1, of(0, 0, 1, 0, 1)}, "V": {1, 1, of(2, 1, -3, 0, -1)},
	"ohm": {1, 1, of(2, 1, -3, 0, -2)}, "Omega": {1, 1, of(2, 1, -3, 0, -2)}, "K": {1, 1, base(temperature)}, "K?": {1, 1, base(temperature)},
	"F": {1, 1, of(-2, -1, 4, 0, 2)}, "T": {1, 1, of(0, 1, -2, 0, -1)}, "Wb": {1, 1, of(2, 1, -2, 0, -1)}, "H": {1, 1, of(2, 1, -2, 0, -2)},
	"USD": {1, 1, base(dollars)}, "cent": {1, 100, base(dollars)}, "EUR": {1, 1, base(euros)}, "GBP": {1, 1, base(pounds)},
	"yuan": {1, 1, base(yuan)}, "rupee": {1, 1, base(rupee)}, "yen": {1, 1, base(yen)}, "ruble": {1, 1, base(ruble)},
}

// unitNamed is the unit of a name, and the power of ten of its prefix.
func unitNamed(name string) (u unit, power int, ok bool) {
	if u, ok = units[name]; ok {
		return u, 0, true
	}
	power, name, ok = latex.Metric(name)
	u, known := units[name]
	return u, power, ok && known
}

// measure is the size in base units and the dimension of a product of units; ok is false if one is not known.
func measure(powers []unitPower) (size *big.Rat, dim dimension, ok bool) {
	size = big.NewRat(1, 1)
	for _, p := range powers {
		u, prefix, ok := unitNamed(p.name)
		if !ok || p.power < -20 || p.power > 20 {
			return nil, dim, false
		}
		den := new(big.Rat).SetInt64(u.den)
		if u.den == 0 { // the electronvolt: 1.602176634e-19 J
			den.SetString("1e28")
		}
		one := new(big.Rat).Quo(new(big.Rat).SetInt64(u.num), den)
		ten, _ := new(big.Rat).SetString("1e" + strconv.Itoa(prefix))
		one.Mul(one, ten)
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
