"""The list of series: written once, read by others, tidied up when it is full."""

from replicarouter.commons.directory import Directory


def a_directory(cells: int = 64) -> Directory:
    return Directory(memoryview(bytearray(cells * 8)))


def test_what_is_added_is_read_by_others() -> None:
    room = memoryview(bytearray(512))
    writer, reader = Directory(room), Directory(room)
    assert writer.add(("attempts", ("a", "ok")), 7, 1)
    assert writer.add(("gaps", ("ä \ud800 / \x00",)), 8, 13)

    assert reader.read() == {("attempts", ("a", "ok")): (7, 1), ("gaps", ("ä \ud800 / \x00",)): (8, 13)}


def test_what_is_dropped_is_not_read_any_more() -> None:
    directory = a_directory()
    directory.add(("a", ()), 1, 1)
    directory.add(("b", ()), 2, 1)
    directory.drop(1)
    directory.drop(99)

    assert directory.read() == {("b", ()): (2, 1)}


def test_room_of_what_was_dropped_is_used_again() -> None:
    directory = a_directory()
    directory.add(("stays", ()), 1000, 1)
    for number in range(1000):
        assert directory.add(("comes and goes", (str(number),)), number + 1001, 1)
        directory.drop(number + 1001)

    assert directory.read() == {("stays", ()): (1000, 1)}


def test_a_full_list_says_so_and_stays_as_it_is() -> None:
    directory = a_directory(16)
    added = [directory.add((f"series {number}", ()), number, 1) for number in range(5)]

    assert added == [True, True, True, False, False]
    assert len(directory.read()) == 3
