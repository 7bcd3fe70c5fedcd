"""Files of rankings: every form is read, what was assumed is said, and mistakes name the line."""

import pytest

from permvi.models import Rankings

TODAY = """# FILE NAME: 00001.{kind}
# TITLE: An election, in 2020
# DATA TYPE: {kind}
# NUMBER ALTERNATIVES: 3
# NUMBER VOTERS: 9
# NUMBER UNIQUE ORDERS: 2
# ALTERNATIVE NAME 1: Ann, the first
# ALTERNATIVE NAME 2: Bob
# ALTERNATIVE NAME 3: Cy
"""
OLD = "3\n1,Ann\n2,Bob\n3,Cy\n9,9,2\n"
NAMES = ("Ann, the first", "Bob", "Cy")


@pytest.fixture
def read(tmp_path):
    def read_file(content, name="r.csv", **settings):
        path = tmp_path / name
        path.write_text(content)
        return Rankings.read(path, **settings)

    return read_file


@pytest.mark.parametrize(
    ("kind", "orders", "levels"),
    [
        ("soc", "5: 1,2,3\n4: 3, 2, 1\n", [[0, 1, 2], [2, 1, 0]]),
        ("soi", "5: 1,2\n4: 3\n", [[0, 1, -1], [-1, -1, 0]]),
        ("toc", "5: {1,2},3\n4: 3,{2, 1}\n", [[0, 0, 1], [1, 1, 0]]),
        ("toi", "5: {1,3}\n4: 2\n", [[0, -1, 0], [-1, 0, -1]]),
    ],
)
def test_preflib(read, kind, orders, levels):
    model = read(TODAY.format(kind=kind) + orders, f"votes.{kind}")
    assert model.items == NAMES
    assert model.levels.tolist() == levels
    assert model.counts.tolist() == [5, 4]
    assert model.note.startswith("read as a file of PrefLib: 9 rankings of 3 items")
    assert ("did not take part" in model.note) == kind.endswith("i")
    assert ("unknown order" in model.note) == kind.startswith("t")
    # Known by its first line as well, and the old form by its name.
    assert read(TODAY.format(kind=kind) + orders, "r.txt").levels.tolist() == levels
    old = read(OLD + orders.replace(": ", ","), f"old.{kind}")
    assert (old.items, old.levels.tolist()) == (("Ann", "Bob", "Cy"), levels)
    below = read(TODAY.format(kind=kind) + orders, f"votes.{kind}", unranked="below")
    assert (below.levels >= 0).all()


def test_lines_with_arrows(read):
    text = (
        "# ballots\nRome > Paris, France>Lima\n\n12: Lima = Rome > Paris, France\n2 x Lima>Rome\n"
    )
    model = read(text, "votes.txt")
    assert model.items == ("Rome", "Paris, France", "Lima")
    assert model.levels.tolist() == [[0, 1, 2], [0, 1, 0], [1, -1, 0]]
    assert model.counts.tolist() == [1, 12, 2]
    assert model.note.startswith(
        "read as lines with arrows (the best first, '=' for ties): 15 rankings of 3 items"
    )
    assert "did not take part" in model.note
    # Too few lines with an arrow make it another form, unless the form is given.
    tied = read("A > B\nB = A\n", "t.txt", format="arrows")
    assert tied.levels.tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("A >> B", "line 2: expected an item on either side of '>' and '='"),
        ("> A", "line 2: expected an item on either side of '>' and '='"),
        ("A > B = A", "line 2: expected 'A' once, got it again"),
        ("A", "line 2: expected items between '>', the best first, got 'A'"),
    ],
)
def test_mistakes_between_arrows(read, line, words):
    with pytest.raises(ValueError, match=words):
        read(f"A > B\n{line}\n", format="arrows")


def test_a_line_without_an_arrow_is_named(read):
    with pytest.raises(ValueError, match=r"line 3: expected items between '>', .* got 'A B C'"):
        read("A > B > C\nB > A\nA B C\n", "votes.txt")


@pytest.mark.parametrize("prefix", ["3,", "Dee, ", "3 ", "2. ", "2) "])
def test_what_is_before_an_item_is_no_part_of_it(read, prefix):
    with pytest.raises(ValueError, match=r"line 2: expected an item before the first '>', got"):
        read(f"A > B\n{prefix}B > A\n", "votes.txt")
    # Nothing tells that this is no name.
    assert read(f"A > B\n{prefix}D > A\n", "votes.txt").items == ("A", "B", f"{prefix}D")


def test_places_below_names_of_items_are_ranks(read):
    model = read("Timestamp,Tea,Cola,Milk\n9:00,1st,2nd,3rd choice\n9:01,Second,first,\n")
    assert model.items == ("Tea", "Cola", "Milk")
    assert model.levels.tolist() == [[0, 1, 2], [1, 0, -1]]
    assert "cells such as '1st' are taken for ranks" in model.note
    assert "ignored column 'Timestamp'" in model.note


def test_missing_items_at_the_end_of_orders(read):
    model = read("1st,2nd,3rd\nA,B,C\nB,NA,n/a\nC,A,skipped\n")
    assert model.items == ("A", "B", "C")
    assert model.levels.tolist() == [[0, 1, 2], [-1, 0, -1], [1, -1, 0]]
    assert "cells such as 'NA' are taken for empty ones" in model.note


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("# DATA TYPE: cat\n1: 1,2\n", "a.soc", "line 1: expected a file of PrefLib of type"),
        (
            "# DATA TYPE: soc\n# NUMBER ALTERNATIVES: 3\n# ALTERNATIVE NAME 1: A\n1: 1\n", "a.soc",
            "line 2: expected the number of names in the header, 1, got 3",
        ),
        ("# NUMBER ALTERNATIVES: 2\n", "a.soc", "line 1: expected orders after the header, got"),
        ("3\n1,A\n2,B\n", "a.soc", "line 3: expected totals and orders after 3 names, got no"),
    ],
)  # fmt: skip
def test_mistakes_in_headers_of_preflib_are_found_in_their_lines(read, text, name, message):
    with pytest.raises(ValueError, match=message):
        read(text, name)


def test_lines_that_begin_with_a_hash_do_not_tell_the_separator(read):
    model = read("# votes; of May\n1st,2nd,3rd\nA,B,C\nB,A,C\n")
    assert model.items == ("A", "B", "C")
    assert "skipped a line that begins with #" in model.note


def test_two_types_of_a_file_of_preflib_are_noted(read):
    text = TODAY.format(kind="toi") + "4: 1,{2,3}\n"
    assert "the header says toi, the name of the file soc" in read(text, "votes.soc").note


def test_names_of_preflib_keep_quotes_inside(read):
    names = TODAY.format(kind="soc").replace("Bob", '"Bob"').replace("Cy", 'Cy: "the one"')
    assert read(names + "1: 1,2,3\n", "votes.soc").items == (NAMES[0], "Bob", 'Cy: "the one"')


def test_preflib_without_names_and_with_odd_totals(read):
    model = read("# NUMBER ALTERNATIVES: 3\n# NUMBER VOTERS: 7\n2: 1,3\n", "a.soi")
    assert model.items == ("1", "2", "3")
    assert "the header counts 7 voters and the orders 2" in model.note
    twice = TODAY.format(kind="soi").replace("Bob", "Cy") + "1: 1,2,3\n"
    assert read(twice, "a.soi").items == ("Ann, the first", "Cy", "Cy (3)")


def test_counts_of_preflib_may_be_written_as_decimals(read):
    assert read(OLD + "3.0,1,2,3\n20.00,3,2,1\n", "a.soc").counts.tolist() == [3, 20]
    few = "3\n1,Ann\n2,Bob\n9,9,2\n4,1,2\n"
    with pytest.raises(ValueError, match="line 4: expected the names of items 1 to 3, got '9,9,2'"):
        read(few, "a.soi")


@pytest.mark.parametrize(
    ("orders", "kind", "message"),
    [
        ("5: 1,2,4\n", "soc", "line 10: expected items of the header, got 4"),
        ("5: 1,2\n", "soc", "line 10: expected all 3 items in a file of type soc, got 2"),
        ("5: {1,2},3\n", "soc", "line 10: expected no ties in a file of type soc"),
        ("5: 1,2,1\n", "soi", "line 10: expected item 1 once, got it again"),
        ("5: 1,{2\n", "toi", "line 10: expected item numbers with ties in braces, got '1,{2'"),
        ("5: 1,,2\n", "toi", "line 10: expected item numbers with ties in braces"),
        ("x: 1,2\n", "soi", "line 10: expected a count, got 'x'"),
        ("2.5: 1,2\n", "soi", "line 10: expected a count, got '2.5'"),
        ("1,2,3\n", "soi", "line 10: expected 'count: order', got '1,2,3'"),
        ("", "soi", "expected orders after the header, got none"),
        ("5: 1\n", "cat", "expected a file of PrefLib of type soc, soi, toc, toi, got 'cat'"),
    ],
)
def test_mistakes_in_preflib(read, orders, kind, message):
    with pytest.raises(ValueError, match="^.*" + message.replace("{", r"\{")):
        read(TODAY.format(kind=kind) + orders, "votes.txt")


@pytest.mark.parametrize(
    ("content", "items", "levels", "note"),
    [
        ("first,second\nA,B\nB,A\n", "AB", [[0, 1], [1, 0]], "each row lists items"),
        ('1st,2nd,3rd\nA,"{B,C}",\nC,A,B\n', "ABC", [[0, 1, 1], [1, 2, 0]], "unknown order"),
        ("1st,2nd,3rd\nA,{B,C}\n", "ABC", [[0, 1, 1]], "unknown order"),
        ("A,B,C\nB,A,C\nC,A,B\n", "BAC", [[1, 0, 2], [0, 1, 2], [2, 1, 0]], "not a header"),
        ("A,B,C\n1,2,2\n3,1,\n", "ABC", [[0, 1, 1], [1, 0, -1]], "1 for the best"),
        ("A,B\n1,2\n", "AB", [[0, 1]], "read as ranks"),
        ("rank1,rank2\n2,1\n1,2\n", "21", [[0, 1], [1, 0]], "each row lists items"),
        ("rank1,rank2\n7,12\n12,7\n", ("7", "12"), [[0, 1], [1, 0]], "each row lists items"),
        ("A,B\n7.5,9\n3,3\n", "AB", [[1, 0], [0, 0]], "larger is better"),
        ("wine,A,B\nann,1,2\nbo,2,1\n", "AB", [[0, 1], [1, 0]], "column 'wine' names the judges"),
        ("judge,item,score\nx,A,3\nx,B,4\ny,A,1\ny,B,0\n", "AB", [[1, 0], [0, 1]], "as ratings"),
        ("user,item,rank\nx,A,1\nx,B,2\n", "AB", [[0, 1]], "read as ranks"),
        (
            "rank,item,judge\n1,A,x\n2,B,x\n2,A,y\n1,B,y\n",
            "AB",
            [[0, 1], [1, 0]],
            "a row for each judge and item, 1 for the best",
        ),
        ("A,B,C\n1,2,NA\n2,1,-\n", "ABC", [[0, 1, -1], [1, 0, -1]], "such as 'NA' are taken for"),
        ("A,B,C,D\n4,3,3,2\n4,4,1,3\n", "ABCD", [[0, 1, 1, 2], [0, 0, 2, 1]], "as ratings"),
        ("A,B,C,D\n1,2,2,4\n1,2,2,3\n1,4,4,4\n", "ABCD", None, "read as ranks"),
        ("ballot,count\nA>B=C,4\nB > A,2\n", "ABC", [[0, 1, 1], [1, 0, -1]], "6 rankings"),
        ("day,winner,loser\n1,A,B\n2,B,A\n", "AB", [[0, 1], [1, 0]], "ignored column 'day'"),
        ("winner,loser,draw\nA,B,0\nB,A,1\n", "AB", [[0, 1], [0, 0]], "a winner and a loser"),
        (
            "# made by hand\nfirst,second\nA,B\n",
            "AB",
            [[0, 1]],
            "skipped a line that begins with #",
        ),
        # Saved indices, with and without a column of judges.
        (",judge,A,B\n0,x,1,2\n1,y,2,1\n", "AB", [[0, 1], [1, 0]], "read as ranks"),
        ("Unnamed: 0,A,B\n0,1,2\n1,2,1\n", "AB", [[0, 1], [1, 0]], "read as ranks"),
        ("Unnamed: 0,A,B\nx,1,2\ny,2,1\n", "AB", [[0, 1], [1, 0]], "read as ranks"),
        ("index,winner,loser\n1,A,B\n2,B,A\n", "AB", [[0, 1], [1, 0]], "2 rankings of 2 items"),
        # Tied items have the mean of their ranks.
        ("A,B,C\n1.5,1.5,3\n2,1,3\n", "ABC", [[0, 0, 1], [1, 0, 2]], "1 for the best"),
        ("A,B,C\n1.5,2.5,3\n2,1,3\n", "ABC", [[2, 1, 0], [1, 2, 0]], "larger is better"),
        ("1,2,3\n2,1,3\n", "123", [[1, 0, 2]], "the first row names the items, 1, 2, 3"),
    ],
)
def test_csv(read, content, items, levels, note):
    model = read(content)
    assert model.items == tuple(items)
    assert levels is None or model.levels.tolist() == levels
    assert note in model.note


def test_the_format_can_be_given(read):
    content = "A,B\n12,7\n"
    assert read(content, format="ranks").levels.tolist() == [[1, 0]]
    assert read(content, format="ratings").levels.tolist() == [[0, 1]]
    assert read(content, format="orders").items == ("12", "7")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("A,B\n12,7\n", "whole numbers other than ranks from 1 to 2 under names that are no"),
        # Ranks with gaps or ratings.
        ("A,B,C\n1,99,99\n2,1,99\n", "whole numbers other than ranks from 1 to 3"),
        ("A,B,C\n1,2,3\n2,x,1\n", r"line 3, column 2 \('B'\): expected a number as in most cells"),
        (
            "home,away,hg,ag\nA,B,2,1\nB,C,0,1\n",
            "line 1: .* names in column 'home' and numbers in column 'hg'",
        ),
        ("id,driver\n1,Ann\n2,Bob\n", "line 1: expected two columns of items or more, got 'id, dr"),
        ("Answer\nA;B;C\nB;A\n", "line 1: expected two columns of items or more, got 'Answer'"),
        ("place1,place2,place3\nA,B\nC,D\n", "line 3: .* got rows that have no item in common"),
        ("voter,A,B,C\nx,1,2,3\ny,1,2,5\n", "line 3: expected to tell orders, ranks and ratings"),
        ("1st,2nd,3rd\nA/B,C\nC,A,B\n", r"line 2: expected ties in braces, .*, got 'A/B'"),
        ("1st,2nd\nA,B\nOvervote,A\n", "line 3: expected items, got 'overvote'; leave such cells"),
        ("1st,2nd\nA,B\nskipped,A\n", "line 3: expected empty cells at the end only"),
        ("winner,loser,tie\nA,B,1\nA,B,maybe\n", r"line 3, column 3 \('tie'\): expected yes or no"),
        ("1st,2nd\nA,{B\n", "line 2: expected a brace at the end of a tie"),
        ("judge,item,score\nx,A,3\nx,A,4\n", "line 3: expected 'A' once, got it again"),
        ("winner,loser\nA,\n", "line 2: expected two items, got an empty cell"),
        ("only,a header\n", "expected a header and rows, got 1 rows"),
        (
            "2,1,3\n1,2,3\n",
            "line 1: expected a header with the names of the items, got the numbers",
        ),
        (
            "item,x,y,z\nA,1,2,1\nB,2,1,2\n",
            "line 1: expected a row for each judge and a column for",
        ),
        (
            "judge,A,B\nx,90%,20%\ny,10%,5%\n",
            r"line 2, column 2 \('A'\): expected a number, got '90%'",
        ),
        ("count,first,second\n3e11,A,B\n", "expected up to 1,000,000,000 rankings, got 3e.11"),
    ],
)
def test_mistakes_in_csv(read, content, message):
    with pytest.raises(ValueError, match=message):
        read(content)


@pytest.mark.parametrize(
    ("content", "items", "levels", "note"),
    [
        # Ids and time stamps of voters are no items.
        (
            "ballot id,Choice 1,Choice 2\nb1,A,B\nb2,B,A\nb3,A,\n",
            "AB",
            [[0, 1], [1, 0], [0, -1]],
            "read as orders",
        ),
        (
            "Timestamp,First choice,Second choice,District\n9:00,A,B,7\n9:00,B,A,8\n",
            "AB",
            [[0, 1], [1, 0]],
            "ignored column 'Timestamp'; ignored column 'District'",
        ),
        ("age,rank1,rank2\n33,7,12\n41,12,7\n", ("7", "12"), [[0, 1], [1, 0]], "ignored column"),
        (
            "who,a,b,c\nx,A,B,C\ny,B,A,C\nz,A,C,B\n",
            "ABC",
            [[0, 1, 2], [1, 0, 2], [0, 2, 1]],
            "column 'who' names the judges",
        ),
        # Two judges may well have favourites that the other does not list.
        ("a,b,c\nA,C,D\nB,C,D\n", "ACDB", [[0, 1, 2, -1], [-1, 1, 2, 0]], "each row lists items"),
        # Names in camel case, as in ratings of films.
        (
            "userId,movieId,rating,time\n1,31,2.5,126\n1,10,3,127\n2,31,4,128\n2,10,1,129\n",
            ("31", "10"),
            [[1, 0], [0, 1]],
            "a row for each judge and item, larger is better",
        ),
        (
            "a,b,winner\nA,B,A\nB,C,draw\nC,A,A\n",
            "ABC",
            [[0, 1, -1], [-1, 0, 0], [0, -1, 1]],
            "columns 'a' and 'b' hold the two items",
        ),
    ],
)
def test_other_columns_are_no_items(read, content, items, levels, note):
    model = read(content)
    assert model.items == tuple(items)
    assert model.levels.tolist() == levels
    assert note in model.note


def test_a_first_column_of_items_is_not_said_to_name_judges(read):
    model = read("item,judge,rank\nA,1,1\nB,1,2\nA,2,2\nB,2,1\n")
    assert model.items == ("A", "B")
    assert model.levels.tolist() == [[0, 1], [1, 0]]
    assert model.note.endswith("1 for the best): 2 rankings of 2 items")


def test_ties_between_arrows_may_be_tildes(read):
    model = read("A > B ~ C\nC > A > B~2\n", "r.txt")
    assert model.items == ("A", "B", "C", "B~2")
    assert model.levels.tolist() == [[0, 1, 1, -1], [1, -1, 0, 2]]


def test_preflib_knows_names_that_other_files_would_split(read):
    names = ['"An ""odd"" one"', "Bob\u2028the second", "Cy"]
    head = "".join(f"# ALTERNATIVE NAME {k}: {name}\n" for k, name in enumerate(names, 1))
    model = read(f"# DATA TYPE: soc\n{head}2: 1,2,3\n", "votes.txt")
    assert model.items == ('An "odd" one', "Bob\u2028the second", "Cy")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # Without totals, the first order would be taken for them.
        (
            "3\n1,Ann\n2,Bob\n3,Cy\n5,1,2,3\n4,3,2,1\n",
            "line 5: expected the numbers of voters, orders and different orders, got '5,1,2,3'",
        ),
        (
            TODAY.format(kind="soc").replace("NAME 2", "NAME 1"),
            "line 8: expected one name of item 1, got another, 'Bob'",
        ),
    ],
)
def test_headers_of_preflib_with_mistakes(read, content, message):
    with pytest.raises(ValueError, match=message):
        read(content, "votes.soc")


def test_columns_of_values_are_no_items(read):
    message = "line 1: expected a column for each item, got a column 'rating'"
    with pytest.raises(ValueError, match=message):
        read("who,film,rating\n1,31,2.5\n1,10,3\n2,31,4\n", format="ratings")
    with pytest.raises(ValueError, match=message):
        read("who,film,rating\n1,31,2.5\n1,10,3\n2,31,4\n")


def test_a_column_of_years_counts_nothing(read):
    model = read("winner,loser,year\nA,B,2003\nB,A,2004\nA,B,2005\n")
    assert model.counts.sum() == 3
    assert "ignored column 'year' (name it count if it counts the comparisons)" in model.note
    # Judges may well be items.
    assert read("judge,A,B\nA,7,2\nB,5,5\n").levels.tolist() == [[0, 1], [0, 0]]
    assert read("matches,winner,loser\n4,A,B\n").counts.tolist() == [4]


def test_names_that_differ_in_case_are_said(read):
    note = read("first,second\nA,B\na,B\n").note
    assert "'A' and 'a' are taken for two items" in note


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # A row of means would turn ranks into ratings.
        (
            "judge,A,B,C\nw,1,2,3\nx,2,1,3\ny,1,3,2\nmean,1.3,2,2.7\n",
            "line 5: expected ranks from 1 to 3 as in most rows, got others",
        ),
        (
            ",x,y,z\nRome,1,2,1\nParis,2,1,3\nOslo,3,3,2\n",
            "got columns that rank the rows from 1 to 3; turn the table",
        ),
        (",A,B,C\nA,0,3,2\nB,1,0,4\nC,2,0,0\n", "line 1: expected a row for each judge, got one"),
        ("white,black,result\nA,B,1-0\nB,C,0-1\n", "line 1: .* got a column 'result'; name the"),
    ],
)
def test_tables_that_are_no_rankings_are_refused(read, content, message):
    with pytest.raises(ValueError, match=message):
        read(content)
