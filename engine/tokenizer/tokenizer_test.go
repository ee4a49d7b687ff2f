package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"attnbudget/engine/gguf"
)

const shippedModel = "../builtin/glossary-5m-f16.gguf"

func shipped(tb testing.TB) *Tokenizer {
	tb.Helper()
	f, err := gguf.Open(shippedModel)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	t, err := New(f)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// newFrom makes a tokenizer of metadata alone.
func newFrom(tb testing.TB, metadata map[string]any) (*Tokenizer, error) {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "vocabulary.gguf")
	w, err := gguf.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer w.Abort()
	for key, value := range metadata {
		if err := w.Set(key, gguf.ValueOf(value)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		tb.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	return New(f)
}

// smallSPM is an SPM vocabulary: three special tokens, all bytes, the characters and words of extra, special texts.
func smallSPM(extra []string, special map[string]int32) map[string]any {
	tokens := []string{"<unk>", "<s>", "</s>"}
	types := []int32{2, 3, 3}
	for b := range 256 {
		tokens = append(tokens, byteTokenText(byte(b)))
		types = append(types, 6)
	}
	for _, text := range extra {
		tokens = append(tokens, text)
		types = append(types, 1)
	}
	for _, text := range slices.Sorted(maps.Keys(special)) {
		tokens = append(tokens, text)
		types = append(types, special[text])
	}
	scores := make([]float32, len(tokens))
	for i := range scores {
		scores[i] = -float32(i)
	}
	return map[string]any{keyModel: "llama", keyTokens: tokens, keyTypes: types, keyScores: scores}
}

// texts renders ids readably.
func texts(t *Tokenizer, ids []int32) string {
	var s []string
	for _, id := range ids {
		s = append(s, t.vocab.tokens[id].text)
	}
	return strings.Join(s, "|")
}

func TestSPMFallsBackToBytesAndPrefixesSpaces(t *testing.T) {
	tok, err := newFrom(t, smallSPM([]string{"▁", "a", "b", "ab", "▁ab"}, map[string]int32{"<x>": 3, "<u>": 4}))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text                   string
		addSpecial, parse      bool
		want, decodedWithFirst string
	}{
		{"ab", true, false, "<s>|▁ab", "<s> ab"},
		{"ab", false, false, "▁ab", "ab"},
		{"ä", false, false, "▁|<0xC3>|<0xA4>", "ä"},
		{"a\xff", false, false, "▁|a|<0xFF>", "a\xff"},
		{"ab<x>ab", false, true, "▁ab|<x>|▁ab", "ab<x> ab"},
		{"ab<u>ab", false, false, "▁ab|<u>|▁ab", "ab<u> ab"},
		{"<s>", true, true, "<s>|<s>", "<s><s>"},
		{"", true, false, "<s>", "<s>"},
		{"", false, false, "", ""},
	} {
		ids := tok.Encode(c.text, c.addSpecial, c.parse)
		if got := texts(tok, ids); got != c.want {
			t.Errorf("Encode(%q, %v, %v) = %s, want %s", c.text, c.addSpecial, c.parse, got, c.want)
		}
		if got := tok.Decode(ids); got != c.decodedWithFirst {
			t.Errorf("Decode of %q = %q, want %q", c.text, got, c.decodedWithFirst)
		}
	}
	if !tok.IsSPM() || !tok.AddBOS() || tok.BOS() != 1 || tok.EOS() != 2 || tok.AddEOS() {
		t.Errorf("SPM defaults: spm %v, add BOS %v, BOS %d, EOS %d, add EOS %v", tok.IsSPM(), tok.AddBOS(), tok.BOS(), tok.EOS(), tok.AddEOS())
	}
	if !tok.IsEOG(tok.EOS()) || tok.IsEOG(tok.BOS()) {
		t.Error("EOS, and not BOS, must end a generation")
	}
}

func TestSettingsOfTheFileOverrideDefaults(t *testing.T) {
	m := smallSPM([]string{"▁", "a"}, nil)
	m[keySpacePrefix], m[keyAddBOS], m[keyAddEOS], m[keyBOS] = false, false, true, uint32(0)
	tok, err := newFrom(t, m)
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(tok, tok.Encode("a", true, false)); got != "a|</s>" {
		t.Errorf("got %s", got)
	}
	if got := texts(tok, tok.Encode("a", false, false)); got != "a" {
		t.Errorf("without special tokens: got %s", got)
	}
	if tok.BOS() != 0 {
		t.Errorf("BOS %d, want 0", tok.BOS())
	}
}

func TestSpecialTokensLongestFirst(t *testing.T) {
	v := smallSPM(nil, map[string]int32{"<a>": 4, "<a><b>": 4, "a><b": 4, "<ctl>": 3})
	v[keySpacePrefix] = false
	tok, err := newFrom(t, v)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text  string
		parse bool
		want  string
	}{
		{"<a><a><b>", false, "<a>|<a><b>"},
		{"<a><a><a>", false, "<a>|<a>|<a>"},
		// The longer token goes first although the shorter one begins further left.
		{"<a><b.", false, "<0x3C>|a><b|<0x2E>"},
		{"<ctl>", false, "<0x3C>|<0x63>|<0x74>|<0x6C>|<0x3E>"},
		{"<ctl>", true, "<ctl>"},
		{"<unk>", false, "<0x3C>|<0x75>|<0x6E>|<0x6B>|<0x3E>"},
		{"<unk>", true, "<unk>"},
	} {
		if got := texts(tok, tok.Encode(c.text, false, c.parse)); got != c.want {
			t.Errorf("Encode(%q, parse %v) = %s, want %s", c.text, c.parse, got, c.want)
		}
	}
}

func TestSpecialTokensStripWhiteSpaceWhereUpstreamDoes(t *testing.T) {
	v := smallSPM([]string{"▁", "a"}, map[string]int32{"<|end|>": 3})
	v["general.name"], v[keySpacePrefix] = "Phi-3 mini", false
	tok, err := newFrom(t, v)
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(tok, tok.Encode("a <|end|> \n a<s> a", false, true)); got != "a|▁|<|end|>|a|<s>|▁|a" {
		t.Errorf("got %s", got)
	}
}

func TestControlLookingTokensBecomeControl(t *testing.T) {
	v := smallSPM(nil, map[string]int32{"<|im_end|>": 4, "<|fim_prefix|>": 4, "<|fim_pad|>": 1, "<tool>": 4})
	tok, err := newFrom(t, v)
	if err != nil {
		t.Fatal(err)
	}
	for text, ends := range map[string]bool{"<|im_end|>": true, "<|fim_prefix|>": false, "<|fim_pad|>": true, "<tool>": false} {
		id := tok.vocab.byText[text]
		if got := tok.IsEOG(id); got != ends {
			t.Errorf("%s ends generation: %v", text, got)
		}
		recognised := slices.Contains(tok.Encode(text, false, false), id)
		if want := text == "<tool>"; recognised != want {
			t.Errorf("%s recognised without parseSpecial: %v", text, recognised)
		}
	}
}

func TestTokensThatEndAGenerationAreUpstreams(t *testing.T) {
	for _, c := range []struct {
		name  string
		types map[string]int32
		keys  map[string]string // metadata that names a token by its id
		ends  string            // texts, sorted
		shown string            // recognised without being asked for
	}{
		{"by key", map[string]int32{"<a>": 4, "<b>": 4, "<c>": 4, "<d>": 4}, map[string]string{keyEOS: "<a>", "tokenizer.ggml.eot_token_id": "<b>", "tokenizer.ggml.eom_token_id": "<c>"},
			"</s> <a> <b> <c>", "<a> <b> <c> <d>"},
		{"of several paddings the first", map[string]int32{"<|fim_pad|>": 1, "[PAD]": 1}, nil, "</s> <|fim_pad|>", ""},
		{"a call ends, and so does an end", map[string]int32{"<|call|>": 3, "<|end|>": 3}, nil, "</s> <|call|> <|end|>", ""},
		{"but not where a message returns", map[string]int32{"<|call|>": 3, "<|end|>": 3, "<|return|>": 3, "<|channel|>": 3}, nil, "</s> <|call|> <|return|>", "<|channel|> <|end|>"},
	} {
		m := smallSPM(nil, c.types)
		for key, text := range c.keys {
			m[key] = uint32(slices.Index(m[keyTokens].([]string), text))
		}
		tok, err := newFrom(t, m)
		if err != nil {
			t.Fatal(err)
		}
		var ends, shown []string
		for id, token := range tok.vocab.tokens {
			if tok.IsEOG(int32(id)) {
				ends = append(ends, token.text)
			}
			if slices.Equal(tok.Encode(token.text, false, false), []int32{int32(id)}) {
				shown = append(shown, token.text)
			}
		}
		if got := strings.Join(ends, " "); got != c.ends {
			t.Errorf("%s: %s end a generation, want %s", c.name, got, c.ends)
		}
		if got := strings.Join(shown, " "); got != c.shown {
			t.Errorf("%s: %s are recognised, want %s", c.name, got, c.shown)
		}
	}
}

func TestSuppressedTokensMustBeTokens(t *testing.T) {
	m := smallSPM(nil, nil)
	size := len(m[keyTokens].([]string))
	m[keySuppress] = []int32{3, int32(size - 1)}
	tok, err := newFrom(t, m)
	if err != nil || !slices.Equal(tok.Suppressed(), []int32{3, int32(size - 1)}) {
		t.Errorf("%v, error %v", tok.Suppressed(), err)
	}
	m[keySuppress] = []int32{3, int32(size)}
	if _, err := newFrom(t, m); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("suppress_tokens has %d but the vocabulary has tokens 0 to %d", size, size-1)) {
		t.Errorf("error %v", err)
	}
}

func TestTextsThatVocabulariesLackOrWriteDifferently(t *testing.T) {
	m := smallSPM(nil, nil)
	tokens := append(m[keyTokens].([]string), "", "") // upstream numbers them
	tokens[3+'a'] = "a"                               // instead of <0x61>
	m[keyTokens], m[keyTypes], m[keyScores] = tokens, append(m[keyTypes].([]int32), 1, 1), make([]float32, len(tokens))
	tok, err := newFrom(t, m)
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Decode([]int32{0, 3 + 'a', 3 + 'b'}); got != "<unk>ab" {
		t.Errorf("decoded %q", got)
	}
	if tok, err = newFrom(t, map[string]any{keyModel: "gpt2", keyPre: "gpt-2", keyTokens: []string{"a", "b"}, keyMerges: []string{}}); err != nil {
		t.Fatal(err)
	}
	if tok.BOS() != none || tok.EOS() != none || tok.IsEOG(defaultBPESpecial) {
		t.Errorf("a vocabulary of 2 begins with %d and ends with %d", tok.BOS(), tok.EOS())
	}
}

func TestUnsupportedVocabulariesAreRefusedByName(t *testing.T) {
	bpe := func(pre any) map[string]any {
		m := smallSPM(nil, nil)
		m[keyModel], m[keyMerges] = "gpt2", []string{"a b"}
		if pre != nil {
			m[keyPre] = pre
		}
		return m
	}
	bert := smallSPM(nil, nil)
	bert[keyModel] = "bert"
	for _, c := range []struct {
		name     string
		metadata map[string]any
		want     []string
	}{
		{"unknown pre-tokeniser", bpe("tekken"), []string{`tokenizer.ggml.pre is "tekken"`, "llama-bpe", "qwen35", "gpt-2"}},
		{"no pre-tokeniser", bpe(nil), []string{"tokenizer.ggml.pre is missing", "llama-bpe"}},
		{"unknown vocabulary", bert, []string{`tokenizer.ggml.model is "bert"`, "llama, gpt2, gemma4"}},
	} {
		_, err := newFrom(t, c.metadata)
		var u *UnsupportedError
		if !errors.As(err, &u) {
			t.Errorf("%s: error %v", c.name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", c.name, err, w)
			}
		}
	}
}

func TestInconsistentVocabulariesAreRefused(t *testing.T) {
	with := func(key string, value any) map[string]any {
		m := smallSPM([]string{"a"}, nil)
		if value == nil {
			delete(m, key)
		} else {
			m[key] = value
		}
		return m
	}
	twice := smallSPM([]string{"a", "a"}, nil)
	short := smallSPM(nil, nil)
	short[keyTokens] = short[keyTokens].([]string)[:100]
	for _, c := range []struct {
		name     string
		metadata map[string]any
		want     string
	}{
		{"no tokens", with(keyTokens, nil), keyTokens},
		{"too few scores", with(keyScores, []float32{1}), "has 1 entries for 260 tokens"},
		{"too few types", with(keyTypes, []int32{1}), "has 1 entries for 260 tokens"},
		{"duplicate", twice, `tokens 259 and 260 are both "a"`},
		{"missing bytes", short, "no token for byte <0x61>"},
		{"BOS out of range", with(keyBOS, uint32(1000)), "is 1000 but the vocabulary has tokens 0 to 259"},
	} {
		if _, err := newFrom(t, c.metadata); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestShippedModelEncodesItsText(t *testing.T) {
	tok := shipped(t)
	text, err := os.ReadFile("../builtin/evaluation.txt")
	if err != nil {
		t.Fatal(err)
	}
	ids := tok.Encode(string(text), true, false)
	if ids[0] != tok.BOS() || !tok.AddBOS() || tok.IsSPM() {
		t.Error("a llama-bpe vocabulary begins with BOS")
	}
	if chunks := len(ids) / 512; chunks != 157 {
		t.Errorf("%d tokens give %d chunks of 512, upstream counts 157", len(ids), chunks)
	}
	if got := tok.Decode(ids[1:]); got != string(text) {
		t.Error("the text does not come back")
	}
	if tok.VocabSize() != 2048 {
		t.Errorf("vocabulary of %d", tok.VocabSize())
	}
}

func TestInvalidUTF8IsReadAsUpstreamReadsIt(t *testing.T) {
	for in, want := range map[string]string{
		"a\xffb":           "a�b",
		"\xe2\x82":         "��",
		"\xc0\x80":         "\x00",             // overlong: shortened
		"\xed\xa0\x80":     "\xed\xa0\x80",     // surrogate: kept
		"\xed\xbf\xbf":     "\xed\xbf\xbf",     // the last one
		"\xf4\xbf\xbf\xbf": "����",             // beyond U+10FFFF
		"\xf0\x9f\x98\x80": "\xf0\x9f\x98\x80", // valid
		"\xc3(":            "�(",
	} {
		if got := upstreamUTF8(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestStreamNeverSplitsACharacter(t *testing.T) {
	tok := shipped(t)
	for _, text := range []string{"naïve 😀 漢字", "a\xc3", "\xff\xfe", "🏳️‍🌈"} {
		s := tok.NewStream()
		var parts []string
		for _, id := range tok.Encode(text, false, false) {
			parts = append(parts, s.Push(id))
		}
		for _, p := range parts {
			if !utf8.ValidString(p) {
				t.Errorf("%q: part %q is not whole characters", text, p)
			}
		}
		if got, want := strings.Join(parts, "")+s.Flush(), upstreamUTF8(text); got != want {
			t.Errorf("%q comes out as %q", text, got)
		}
	}
	// An unfinished character is held back until it is flushed.
	s := tok.NewStream()
	lead := tok.Encode("é", false, false)[0]
	if len(tok.Piece(lead)) == 1 {
		if got := s.Push(lead); got != "" {
			t.Errorf("half a character came out: %q", got)
		}
		if got := s.Flush(); got != "\xc3" {
			t.Errorf("flushed %q", got)
		}
	}
}

func TestPieceOfForeignIDIsEmpty(t *testing.T) {
	tok := shipped(t)
	for _, id := range []int32{-1, 2048, 1 << 30} {
		if p := tok.Piece(id); len(p) != 0 {
			t.Errorf("Piece(%d) = %q", id, p)
		}
	}
}

func TestSplitters(t *testing.T) {
	for _, c := range []struct {
		name string
		f    splitter
		text string
		want string
	}{
		{"llama3", splitLlama3, "I'LL 12345 don't", "I|'LL| |123|45| don|'t"},
		{"llama3", splitLlama3, "a,b  c\n\n d...\n x", "a|,b| | c|\n\n| d|...\n| x"},
		{"llama3", splitLlama3, "end  ", "end|  "},
		{"llama3", splitLlama3, "\t\tx \r\n", "\t|\tx| \r\n"},
		{"llama3", splitLlama3, "ก็ x", "ก|็| x"},
		{"llama3", splitLlama3, "a\rb\r\nc", "a|\r|b|\r\n|c"},
		{"qwen2", splitQwen2, "a12 ", "a|1|2| "},
		{"qwen35", splitQwen35, "ก็ x!", "ก็| x|!"},
		{"gpt-2", splitGPT2, "I'LL I'll 123  x \n", "I|'|LL| I|'ll| 123| | x| \n"},
		{"smollm", splitDigits, "a 5", "a| |5"},
		{"smollm", splitDigits, "   56", "   |5|6"},
		{"smollm", splitDigits, "\n\n 5", "\n\n |5"},
		{"smollm", splitDigits, "  b", " | b"},
		{"smollm", splitDigits, "don't 3's", "don|'t| |3|'s"},
		{"smollm", splitDigits, "x²³ ½", "x|²|³| |½"},
		{"smollm", splitDigits, "1, 2.50 a  ", "1|,| |2|.|5|0| a|  "},
		{"gemma4", splitLines, "a b\n\n\nc", "a b|\n\n\n|c"},
	} {
		var got []string
		for text := c.text; text != ""; {
			n := c.f(text)
			got = append(got, text[:n])
			text = text[n:]
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%s splits %q into %q, want %q", c.name, c.text, s, c.want)
		}
	}
}

func TestMergesGoByRankThenFromTheLeft(t *testing.T) {
	m := smallSPM(nil, nil)
	tokens := []string{}
	for b := range 256 {
		tokens = append(tokens, string(byteToRune[b]))
	}
	tokens = append(tokens, "aa", "ab")
	m[keyTokens], m[keyModel] = tokens, "gpt2"
	delete(m, keyTypes)
	delete(m, keyScores)
	m[keyMerges] = []string{"a a", "a b", "a a", "aa ab", "Ã ©"}
	// "aaab" and "é" are no tokens: the characters of the byte alphabet are looked up byte by byte, which finds ASCII alone.
	var tok *Tokenizer
	for _, pre := range []string{"llama-bpe", "gpt-2"} {
		m[keyPre] = pre
		var err error
		if tok, err = newFrom(t, m); err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]string{"aaa": "aa|a", "aab": "aa|b", "ab": "ab", "aaaab": "aa|aa|b", "aaab": "a|a|a|b", "b": "b", "bé": "b"} {
			if got := texts(tok, tok.Encode(text, false, false)); got != want {
				t.Errorf("%s, %q: got %s, want %s", pre, text, got, want)
			}
		}
	}
	if tok.BOS() != defaultBPESpecial || tok.AddBOS() {
		t.Errorf("BOS %d, add BOS %v: upstream's defaults are 11 and false", tok.BOS(), tok.AddBOS())
	}
}

func TestGemma4TakesOnlyNewlinesWhole(t *testing.T) {
	m := smallSPM([]string{"a", "b", "ab", "\n", "\n\n", "\n\n\n", "▁"}, nil)
	m[keyModel], m[keyMerges], m[keyBOS], m[keyAddBOS] = "gemma4", []string{"\n \n"}, uint32(1), false
	m[keySpacePrefix] = true // of SPM vocabularies only
	tok, err := newFrom(t, m)
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(tok, tok.Encode("ab\n\n\na b", true, false)); got != "<s>|a|b|\n\n\n|a|▁|b" {
		t.Errorf("got %q", got)
	}
	for key, want := range map[string]string{keyAddEOS: "wants an EOS token", keyBOS: "wants a BOS token"} {
		bad := maps.Clone(m)
		if bad[keyAddEOS] = key == keyAddEOS; key == keyBOS {
			delete(bad, keyBOS)
		}
		if _, err := newFrom(t, bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", " ", "tiger: large feline", "\r\n\t 123'll", "naïve 😀 漢字\u0301", "\xff\xc0\x80\xed\xa0\x80", "▁▁", "<|end_of_text|>", strings.Repeat("a", 300)} {
		f.Add(s)
	}
	bpe := shipped(f)
	spm, err := newFrom(f, smallSPM([]string{"▁", "a", "b", "ab", "▁a", "▁▁", "ä"}, map[string]int32{"<x>": 3}))
	if err != nil {
		f.Fatal(err)
	}
	tokenizers := []*Tokenizer{bpe, spm}
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range tokenizers {
			ids := tok.Encode(text, false, false)
			if got, want := tok.Decode(ids), roundTrip(tok, text); got != want {
				t.Fatalf("%q decodes to %q", want, got)
			}
			if len(ids) > 3*len(text)+1 {
				t.Fatalf("%d tokens for %d bytes", len(ids), len(text))
			}
			tok.Encode(text, true, true)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	text, err := os.ReadFile("../../../shared/data/wiki.test.raw")
	if err != nil {
		b.Skip("no shared text: ", err)
	}
	for _, name := range vocabularies {
		b.Run(name, func(b *testing.B) {
			tok := sharedVocabulary(b, name)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(string(text), true, false)
			}
		})
	}
}

func ExampleSupported() {
	models, _ := Supported()
	fmt.Println(models)
	// Output: [llama gpt2 gemma4]
}
