package dynamodb

import (
	"bytes"
	"encoding/base64"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// item is the attributes of an item by name.
type item map[string]value

// value is an attribute value in its JSON form: exactly one field is set.
type value struct {
	S    *string           `json:"S,omitempty"`
	N    *string           `json:"N,omitempty"`
	B    *[]byte           `json:"B,omitempty"`
	BOOL *bool             `json:"BOOL,omitempty"`
	NULL *bool             `json:"NULL,omitempty"`
	L    *[]value          `json:"L,omitempty"`
	M    *map[string]value `json:"M,omitempty"`
	SS   *[]string         `json:"SS,omitempty"`
	NS   *[]string         `json:"NS,omitempty"`
	BS   *[][]byte         `json:"BS,omitempty"`
}

// kinds returns the names of the fields that are set.
func (v value) kinds() []string {
	var set []string
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"S", v.S != nil}, {"N", v.N != nil}, {"B", v.B != nil}, {"BOOL", v.BOOL != nil}, {"NULL", v.NULL != nil},
		{"L", v.L != nil}, {"M", v.M != nil}, {"SS", v.SS != nil}, {"NS", v.NS != nil}, {"BS", v.BS != nil},
	} {
		if field.set {
			set = append(set, field.name)
		}
	}
	return set
}

// kind is the type of a checked value: S, N, B, BOOL, NULL, L, M, SS, NS or BS.
func (v value) kind() string { return v.kinds()[0] }

// check refuses what is no value, and writes numbers the way DynamoDB returns
// them.
func (v value) check() error {
	if set := v.kinds(); len(set) != 1 {
		return invalid("Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes (%d are set)", len(set))
	}
	switch {
	case v.N != nil:
		return normalize(v.N)
	case v.L != nil:
		for _, element := range *v.L {
			if err := element.check(); err != nil {
				return err
			}
		}
	case v.M != nil:
		return item(*v.M).check()
	case v.SS != nil:
		return checkSet(*v.SS)
	case v.NS != nil:
		for i := range *v.NS {
			if err := normalize(&(*v.NS)[i]); err != nil {
				return err
			}
		}
		return checkSet(*v.NS)
	case v.BS != nil:
		var encoded []string
		for _, element := range *v.BS {
			encoded = append(encoded, base64.StdEncoding.EncodeToString(element))
		}
		return checkSet(encoded)
	}
	return nil
}

func (i item) check() error {
	for _, name := range sortedKeys(i) {
		if name == "" {
			return invalid("One or more parameter values were invalid: attribute names must not be empty")
		}
		if err := i[name].check(); err != nil {
			return err
		}
	}
	return nil
}

func checkSet(elements []string) error {
	if len(elements) == 0 {
		return invalid("One or more parameter values were invalid: An set may not be empty")
	}
	if sorted := slices.Sorted(slices.Values(elements)); len(slices.Compact(sorted)) != len(elements) {
		return invalid("One or more parameter values were invalid: Input collection %v contains duplicates.", elements)
	}
	return nil
}

var numberPattern = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE]([+-]?\d{1,3}))?$`)

// The limits of DynamoDB's numbers: 38 significant digits, magnitudes from
// 1E-130 to below 1E126.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
const (
	maxDigits      = 38
	smallestPlaces = 130
)

// number parses a number without loss.
func number(text string) (*big.Rat, error) {
	match := numberPattern.FindStringSubmatch(text)
	if match == nil {
		return nil, invalid("The parameter cannot be converted to a numeric value: %s", text)
	}
	mantissa := strings.TrimLeft(strings.NewReplacer("+", "", "-", "", ".", "").Replace(strings.TrimSuffix(text, match[2])), "0")
	if len(strings.TrimRight(mantissa, "0")) > maxDigits {
		return nil, invalid("Attempting to store more than %d significant digits in a Number", maxDigits)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, invalid("The parameter cannot be converted to a numeric value: %s", text)
	}
	if magnitude := new(big.Rat).Abs(r); r.Sign() != 0 {
		if magnitude.Cmp(powerOfTen(126)) >= 0 {
			return nil, invalid("Number overflow. Attempting to store a number with magnitude larger than supported range")
		}
		if magnitude.Cmp(powerOfTen(-smallestPlaces)) < 0 {
			return nil, invalid("Number underflow. Attempting to store a number with magnitude smaller than supported range")
		}
	}
	return r, nil
}

func powerOfTen(exponent int) *big.Rat {
	r, _ := new(big.Rat).SetString("1e" + strconv.Itoa(exponent)) // always a number
	return r
}

// normalize checks a number and writes it without superfluous zeros.
func normalize(text *string) error {
	r, err := number(*text)
	if err != nil {
		return err
	}
	if r.IsInt() {
		*text = r.Num().String()
		return nil
	}
	*text = strings.TrimRight(r.FloatString(smallestPlaces+maxDigits), "0")
	return nil
}

// scalar is the text of a checked S, N or B: what a key is known by.
func (v value) scalar() string {
	switch {
	case v.S != nil:
		return *v.S
	case v.N != nil:
		return *v.N
	case v.B != nil:
		return string(*v.B)
	}
	return ""
}

// equal says whether two checked values are the same: of one type, numbers by
// value, sets in any order.
func (v value) equal(w value) bool {
	if v.kind() != w.kind() {
		return false
	}
	switch {
	case v.BOOL != nil:
		return *v.BOOL == *w.BOOL
	case v.NULL != nil:
		return true
	case v.L != nil:
		return slices.EqualFunc(*v.L, *w.L, value.equal)
	case v.M != nil:
		return maps.EqualFunc(*v.M, *w.M, value.equal)
	case v.SS != nil:
		return sameElements(*v.SS, *w.SS)
	case v.NS != nil:
		return sameElements(*v.NS, *w.NS)
	case v.BS != nil:
		return slices.EqualFunc(sortedBytes(*v.BS), sortedBytes(*w.BS), bytes.Equal)
	}
	return v.scalar() == w.scalar() // numbers were written one way by check
}

func sameElements(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func sortedBytes(set [][]byte) [][]byte {
	return slices.SortedFunc(slices.Values(set), bytes.Compare)
}

// order compares two values of one ordered type (S, N, B); ok is false when
// they are not.
func (v value) order(w value) (order int, ok bool) {
	switch {
	case v.S != nil && w.S != nil:
		return strings.Compare(*v.S, *w.S), true
	case v.B != nil && w.B != nil:
		return bytes.Compare(*v.B, *w.B), true
	case v.N != nil && w.N != nil:
		a, errA := number(*v.N)
		b, errB := number(*w.N)
		return a.Cmp(b), errA == nil && errB == nil
	}
	return 0, false
}

func (v value) ordered() bool { return v.S != nil || v.N != nil || v.B != nil }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
