import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from in2r.data.numbered import Numbered, number_of


@given(st.lists(st.integers(0, 10**9), max_size=9), st.sampled_from(["", "train:"]), st.integers(0, 9))
def test_names_are_those_of_a_list(numbers, prefix, cut):
    names, expected = Numbered(np.array(numbers, dtype=np.int64), prefix), [f"{prefix}{n}" for n in numbers]
    assert names == expected
    assert list(names) == [names[place] for place in range(len(names))] == expected
    assert names[cut:] == expected[cut:]
    assert names != [*expected, "x"]
    assert len(names) == len(numbers)


WRITTEN = st.one_of(st.integers(-3, 150).map(str), st.text("0123456789 -+._²٣", max_size=5))


@given(WRITTEN, st.integers(0, 120))
def test_a_number_is_found_where_a_dictionary_of_all_names_finds_it(name, count):
    assert number_of(name, count) == {str(row): row for row in range(count)}.get(name, -1)
