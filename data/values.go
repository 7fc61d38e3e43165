package data

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/float16"
)

// How the values of columnar files become those of an Object.

// twosComplement reads a number whose highest byte is first.
func twosComplement(b []byte) *big.Int {
	x := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return x
}

// decimalText writes x with the decimal point scale digits from its end.
func decimalText(x *big.Int, scale int) json.Number {
	const most = 1000 // no decimal type has more digits
	digits := x.String()
	switch {
	case scale == 0 || scale < -most || scale > most:
		return json.Number(digits)
	case scale < 0:
		if x.Sign() != 0 {
			digits += strings.Repeat("0", -scale)
		}
		return json.Number(digits)
	}
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	if n := scale + 1 - len(digits); n > 0 {
		digits = strings.Repeat("0", n) + digits
	}
	at := len(digits) - scale
	return json.Number(sign + digits[:at] + "." + digits[at:])
}

// moment returns the time that lies x units after the epoch.
func moment(x int64, unit time.Duration) time.Time {
	perSecond := int64(time.Second / unit)
	return time.Unix(x/perSecond, x%perSecond*int64(unit)).UTC()
}

func dateText(x int64) string { return moment(x*86400, time.Second).Format(time.DateOnly) }

// clockText formats the time of day of t.
func clockText(t time.Time) string { return t.Format("15:04:05.999999999") }

// A zone formats times as ISO 8601. Without a name it is the zone of local times,
// which are written without an offset.
type zone struct {
	name  string
	place *time.Location
}

func newZone(name string) zone {
	place, err := time.LoadLocation(name)
	if err != nil {
		place = time.UTC
		if offset, err := time.Parse("-07:00", name); err == nil {
			place = offset.Location()
		}
	}
	return zone{name, place}
}

func (z zone) format(t time.Time) string {
	if z.name == "" {
		return t.Format("2006-01-02T15:04:05.999999999")
	}
	return t.In(z.place).Format(time.RFC3339Nano)
}

// shortestFloat32 returns the number with the fewest decimal digits that is x when read
// as float32: 0.1, and not 0.10000000149011612, is what was written.
func shortestFloat32(x float32) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	if err != nil { // an infinity or no number
		return float64(x)
	}
	return y
}

// shortestFloat16 is shortestFloat32 for float16, whose numbers have at most 5 digits.
func shortestFloat16(x float16.Num) float64 {
	exact := float64(x.Float32())
	if exact == 0 || math.IsInf(exact, 0) || math.IsNaN(exact) {
		return exact
	}
	for digits := 1; digits <= 5; digits++ {
		y, err := strconv.ParseFloat(strconv.FormatFloat(exact, 'g', digits, 64), 64)
		if err == nil && float16.New(float32(y)) == x {
			return y
		}
	}
	return exact
}
